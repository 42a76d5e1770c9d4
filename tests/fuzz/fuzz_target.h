// What a fuzzer and the replay test need of a reader of bytes from outside. A target is a small file,
// X_target.cpp; fuzz_replay_test.cpp lists them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct FuzzTarget {
  const char* name;
  // Valid inputs, with which a fuzzer begins.
  std::vector<std::string> (*seeds)();
  // Words of the format, which a fuzzer inserts.
  std::vector<std::string> words;
  // Returns false if the input was refused in the way that the reader promises, with an Error of one line.
  // Any other exception, or a report of a sanitizer, is a fault.
  bool (*run)(std::string_view input);
};

FuzzTarget CalibrationTarget();
FuzzTarget ChatFormsTarget();
FuzzTarget EncoderTarget();
FuzzTarget GgufTarget();
FuzzTarget GrammarTarget();
FuzzTarget HeadPatternsTarget();
FuzzTarget HfFolderTarget();
FuzzTarget HttpTarget();
FuzzTarget JsonSchemaTarget();
FuzzTarget JsonTarget();
FuzzTarget ParametersTarget();
FuzzTarget PredictorsTarget();
FuzzTarget PrefixTarget();
FuzzTarget ProxiesTarget();
FuzzTarget PruneSpecTarget();
FuzzTarget RegexTarget();
FuzzTarget SafetensorsTarget();
FuzzTarget SchemaCheckTarget();
FuzzTarget TemplateTarget();
FuzzTarget TraceTarget();

}  // namespace coppice
