# What the compiler and the linker add to every release build against memory errors that remain: docs/security.md lists
# each flag with what it stops and what it costs, and the test `hardening` reads them back from the program. Sanitized
# builds go without, because sanitizers check the same and more, and _FORTIFY_SOURCE hides calls from them.
option(COPPICE_HARDEN "Compile and link with the compiler's defences" ON)

if(COPPICE_HARDEN AND NOT COPPICE_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-fcf-protection=full COPPICE_HAS_CET)  # x86 only
  add_compile_options(-fstack-protector-strong -fstack-clash-protection)
  if(COPPICE_HAS_CET)
    add_compile_options(-fcf-protection=full)
  endif()
  # Distributions may define a level of their own.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  # Messages of checks name files of the source, and the program does not tell in whose home it was built.
  add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie> -Wl,-z,relro,-z,now,-z,noexecstack)
endif()
