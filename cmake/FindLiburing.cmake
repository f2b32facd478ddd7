# liburing::liburing, always the archive: what is built runs where liburing is not installed. Also used by the installed
# package, beside which it lies.
find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_ARCHIVE liburing.a)
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_ARCHIVE)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing REQUIRED_VARS LIBURING_ARCHIVE LIBURING_INCLUDE_DIR)
if(Liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing STATIC IMPORTED)
  set_target_properties(liburing::liburing PROPERTIES
    IMPORTED_LOCATION ${LIBURING_ARCHIVE} INTERFACE_INCLUDE_DIRECTORIES ${LIBURING_INCLUDE_DIR})
endif()
