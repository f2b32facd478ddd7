# `cmake --install`: the library, its public headers by their paths, the command, and packages for CMake and pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS cairn EXPORT CairnTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT CairnTargets NAMESPACE Cairn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)

configure_package_config_file(cmake/CairnConfig.cmake.in CairnConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)
write_basic_package_version_file(CairnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/CairnConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/CairnConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)

configure_file(cmake/cairn.pc.in cairn.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
