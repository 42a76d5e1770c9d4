# COPPICE_PORTABLE: a libcoppice.so that older systems load (the wheel, the tarball): it asks for no function that glibc
# 2.28 lacks (RHEL 8 and later have it), and brings along the libraries that those systems may not have. It was run on
# Debian 11. x86-64 only.
option(COPPICE_PORTABLE "Link the library for systems with glibc 2.28 and nothing else" OFF)
find_package(PkgConfig REQUIRED)

# coppice_package(NAME MODULE): PkgConfig::NAME, in portable builds with the module's static library.
function(coppice_package name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  if(COPPICE_PORTABLE)
    find_library(${name}_ARCHIVE NAMES ${module}.a lib${module}.a HINTS ${${name}_LIBRARY_DIRS} REQUIRED)
    set_target_properties(PkgConfig::${name} PROPERTIES INTERFACE_LINK_LIBRARIES ${${name}_ARCHIVE})
  endif()
endfunction()

# coppice_link_portably(TARGET)
function(coppice_link_portably target)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(libraries ${CMAKE_BINARY_DIR}/old_glibc)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/old_glibc.py ${libraries} 2.28 COMMAND_ERROR_IS_FATAL ANY)
  # This machine's libgcc_s, against which a program is linked, asks for more; the target's own is loaded there.
  target_link_options(${target} PRIVATE -static-libstdc++ -shared-libgcc -L${libraries} -Wl,--allow-shlib-undefined)
  # What the linker read of others: tools/wheel_contents.py lists it in the wheel.
  target_link_options(${target} PRIVATE -Wl,--dependency-file=${CMAKE_BINARY_DIR}/$<TARGET_FILE_NAME:${target}>.d)
  target_link_libraries(${target} PRIVATE -Wl,--no-as-needed -lpthread -ldl -Wl,--as-needed)
endfunction()
