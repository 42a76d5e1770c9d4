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

# The manual page is made at install time, out of the help of the program that is installed.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${CMAKE_SOURCE_DIR}/tools/make_manual.py\"
    \"$<TARGET_FILE:coppice>\" \"${CMAKE_BINARY_DIR}/coppice.1.gz\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
  install(FILES ${CMAKE_BINARY_DIR}/coppice.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
else()
  message(NOTICE "no Python 3: `make install` installs no manual page")
endif()

# `make deb`: a package of the program, with the unit where systemd looks for it.
file(READ packaging/coppice.service unit)
string(REPLACE "/usr/local/bin/coppice" "/usr/bin/coppice" unit "${unit}")
string(REGEX REPLACE "#   cp [^\n]*\n" "" unit "${unit}")
file(CONFIGURE OUTPUT deb/coppice.service CONTENT "${unit}" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/deb/coppice.service DESTINATION lib/systemd/system COMPONENT deb EXCLUDE_FROM_ALL)
execute_process(COMMAND gzip -9nc INPUT_FILE ${CMAKE_SOURCE_DIR}/packaging/debian/changelog
                OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/deb/changelog.gz)
install(FILES packaging/debian/copyright ${CMAKE_CURRENT_BINARY_DIR}/deb/changelog.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/coppice COMPONENT deb EXCLUDE_FROM_ALL)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME coppice)
set(CPACK_PACKAGE_VENDOR coppice)
set(CPACK_PACKAGE_CONTACT "coppice <coppice@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference of long prompts, pruned while they are read")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DESCRIPTION "coppice reads long prompts and leaves out, while it reads, the tokens that
do not matter for the answer, so that the first token comes sooner. It opens
GGUF files and Hugging Face folders, and answers on the command line and over
HTTP.")
set(CPACK_COMPONENTS_ALL program deb)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
include(CPack)
