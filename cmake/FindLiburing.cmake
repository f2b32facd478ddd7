# liburing::liburing: the archive, so that what is built runs where liburing is not installed, or the shared library of systems
# that have no archive. Also used by the installed package, beside which it lies.
find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_LIBRARY NAMES liburing.a uring)
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing REQUIRED_VARS LIBURING_LIBRARY LIBURING_INCLUDE_DIR)
if(Liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(liburing::liburing PROPERTIES
    IMPORTED_LOCATION ${LIBURING_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LIBURING_INCLUDE_DIR})
endif()
