# `cmake --install`: the program, the library with its headers, what find_package(coppice) and pkg-config need, and the
# systemd unit as an example.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS coppice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS coppice_shared EXPORT coppice
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/coppice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT coppice NAMESPACE coppice:: FILE coppiceTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/coppice COMPONENT development)
file(CONFIGURE OUTPUT coppiceConfig.cmake CONTENT [[include("${CMAKE_CURRENT_LIST_DIR}/coppiceTargets.cmake")
]] @ONLY)
write_basic_package_version_file(coppiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/coppiceConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/coppiceConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/coppice COMPONENT development)
file(CONFIGURE OUTPUT coppice.pc @ONLY CONTENT [[prefix=${pcfiledir}/../..
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@

Name: coppice
Description: Inference of long prompts, pruned while they are read
Version: @PROJECT_VERSION@
Libs: -L${libdir} -lcoppice
Cflags: -I${includedir}
]])
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/coppice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES packaging/coppice.service DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT program)
