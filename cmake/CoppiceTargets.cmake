# One library per folder of src/. Sources are found by name: x.cpp is compiled into the library, x_test.cpp beside
# it into the folder's test program. ISA-specific files get their flags in the folder's own CMakeLists.txt.

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # false alarms on std::string's operator+ (GCC PR 105651)
endif()
# CMAKE_UNITY_BUILD, which `make` sets, compiles several files of a target as one, because headers are most of a file:
# both builds of `make test` took 30 minutes on two cores instead of 47, with 8 files at once. Files with flags of their
# own, the kernels of each ISA, take no part, so no bit depends on it. An unnamed namespace is then that of several files;
# a test's lies in a namespace of its file's name where names meet.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24 CACHE STRING "Files that are compiled as one, with CMAKE_UNITY_BUILD")
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a .cpp file with members of its unnamed namespace; a file's local name that is another file's name.
  add_compile_options(-Wno-subobject-linkage -Wno-shadow)
endif()
if(COPPICE_SANITIZE)
  add_compile_options(-fsanitize=${COPPICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${COPPICE_SANITIZE})
endif()
if(COPPICE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# coppice_library(NAME [DEPENDS target...] [SUBDIRS dir...]): coppice_NAME from this folder's sources.
function(coppice_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SUBDIRS" ${ARGN})
  set(sources)
  set(tests)
  foreach(dir . ${ARG_SUBDIRS})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.h)
    list(APPEND sources ${found})
  endforeach()
  foreach(file ${sources})
    if(file MATCHES "_test\\.cpp$")
      list(REMOVE_ITEM sources ${file})
      list(APPEND tests ${file})
    endif()
  endforeach()
  add_library(coppice_${name} STATIC ${sources})
  target_include_directories(coppice_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(coppice_${name} PUBLIC ${ARG_DEPENDS})
  set_target_properties(coppice_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(COPPICE_BUILD_TESTS AND tests)
    coppice_test(${name}_test SOURCES ${tests} DEPENDS coppice_${name})
  endif()
endfunction()

# coppice_cold(TARGET...): a release compiles them with -O1, because what they compute is little beside a prefill: eight
# files of eval, with Boost's HTTP client, take 62 s where -O3 takes 95.
function(coppice_cold)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# coppice_alone(PATTERN...): files that no other joins in a unity build, because several give the same name to things of
# their own (a paper's tables, a task's answers), as they should.
function(coppice_alone)
  file(GLOB found CONFIGURE_DEPENDS ${ARGN})
  set_source_files_properties(${found} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# coppice_embed(NAME FOLDER HEADER FUNCTION file...): compiles files of FOLDER into coppice_NAME, as the list that FUNCTION()
# of HEADER returns.
function(coppice_embed name folder header function)
  get_filename_component(stem ${header} NAME_WE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${stem}.cpp)
  set(paths ${ARGN})
  list(TRANSFORM paths PREPEND ${folder}/)
  set(script ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${source}" -D "FOLDER=${folder}" -D "FILES=${ARGN}" -D HEADER=${header}
            -D FUNCTION=${function} -P ${script}
    DEPENDS ${paths} ${script}
    VERBATIM)
  target_sources(coppice_${name} PRIVATE ${source})
endfunction()

# coppice_test(NAME SOURCES file... [DEPENDS target...] [LABELS label...]): a test program, one CTest test.
# With a variable NAME_shards the cases are spread over so many CTest tests, which run beside each other. With a variable
# NAME_long, a filter, the cases that it names run in a test NAME_long of the label `long`, and not in the others.
function(coppice_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  # A test's own code computes little: -O1 compiles it in 5.4 s where -O3 takes 8.8 (policies/keys_test.cpp).
  target_compile_options(${name} PRIVATE -Wno-conversion $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE COPPICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set(cases "")
  if(DEFINED ${name}_long)
    set(cases "--gtest_filter=-${${name}_long}")
    add_test(NAME ${name}_long COMMAND ${name} "--gtest_filter=${${name}_long}")
    set_tests_properties(${name}_long PROPERTIES LABELS long TIMEOUT 3600)
  endif()
  if(NOT DEFINED ${name}_shards)
    add_test(NAME ${name} COMMAND ${name} ${cases})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
    return()
  endif()
  math(EXPR last "${${name}_shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}_shard_${shard} COMMAND ${name} ${cases})
    set_tests_properties(${name}_shard_${shard} PROPERTIES LABELS "${ARG_LABELS}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${${name}_shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# coppice_test_on_every_isa(NAME [SKIP PATTERN] [SLOW PATTERN]): a test program runs the kernels of the best ISA that
# the machine has; this runs it under each of the others as well (tests/isa_sweep.cpp skips the best one). Cases skip,
# with a message, where the CPU lacks the ISA; those of the reference backend have none. SKIP: cases that do not depend
# on the kernels. SLOW: the cases that run without vectors and under AMX by default, because plain loops and emulated
# tile instructions take minutes. Where either is given, the full sweep has the label `long`.
function(coppice_test_on_every_isa name)
  cmake_parse_arguments(ARG "" "SKIP;SLOW" "" ${ARGN})
  if(NOT TARGET ${name})
    return()  # built without tests
  endif()
  target_link_libraries(${name} PRIVATE coppice_amx_emulator)
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/isa_sweep.cpp)
  foreach(isa scalar avx2 avx512 amx)
    set(cases "*")
    if(isa MATCHES "^(scalar|amx)$" AND ARG_SLOW)
      set(cases "${ARG_SLOW}")
    endif()
    set(skipped "*reference*")
    if(ARG_SKIP)
      string(APPEND skipped ":${ARG_SKIP}")
    endif()
    add_test(NAME ${name}_${isa} COMMAND ${name} "--gtest_filter=${cases}-${skipped}")
    set_tests_properties(${name}_${isa} PROPERTIES ENVIRONMENT "COPPICE_ISA=${isa};COPPICE_ISA_SWEEP=1")
    if(ARG_SKIP OR ARG_SLOW)
      add_test(NAME ${name}_${isa}_whole COMMAND ${name} "--gtest_filter=-*reference*")
      set_tests_properties(${name}_${isa}_whole PROPERTIES LABELS long TIMEOUT 3600
                           ENVIRONMENT "COPPICE_ISA=${isa};COPPICE_ISA_SWEEP=1")
    endif()
  endforeach()
endfunction()
