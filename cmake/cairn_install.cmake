# `cmake --install`: the library, its public headers, the command, and packages for CMake and pkg-config.
# The installed tree can be moved: nothing in it names its prefix.
include(CMakePackageConfigHelpers)

install(TARGETS cairn EXPORT CairnTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT CairnTargets NAMESPACE Cairn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)
install(TARGETS cairn_c EXPORT CairnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES cairn/capi/cairn_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cairn)
if(TARGET cairn_cli)
  install(TARGETS cairn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/CairnConfig.cmake.in CairnConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)
write_basic_package_version_file(CairnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/CairnConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/CairnConfigVersion.cmake
  cmake/FindLiburing.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)

# From the .pc file's folder to the prefix; an absolute libdir or includedir stays as it is.
file(RELATIVE_PATH CAIRN_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
cmake_path(APPEND CAIRN_PC_LIBDIR "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND CAIRN_PC_INCLUDEDIR "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
cmake_path(GET LIBURING_LIBRARY FILENAME CAIRN_PC_LIBURING)
foreach(package cairn cairn_c)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
