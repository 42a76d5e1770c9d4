# Writes HEADER with the commit that SOURCE is at, where that is known and has changed. Called at every build: a commit changes
# no file that the build depends on.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
# Sources without history may lie within the repository of something else.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT failed EQUAL 0 OR NOT top STREQUAL SOURCE OR NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit "")
endif()
set(text "#pragma once\n\nnamespace coppice {\ninline constexpr const char* kCommit = \"${commit}\";\n}  // namespace coppice\n")
set(before "")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${HEADER} "${text}")
endif()
