// A calibration beside a model.
#include "engine/calibration.h"

#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"format":"coppice calibration","version":1,"model":{"name":"m","fingerprint":"0123"},"entries":[)"
      R"({"loss":0.01,"length":4096,"min_tokens":3072,"max_tokens":5120,"prune":"static:keep=0.5,layer=2",)"
      R"("why":"no setting kept the answers","held_out":{"score":98.0,"dense":98.5,"n":50}},)"
      R"({"loss":0.05,"length":4096,"min_tokens":1,"max_tokens":9000,"prune":"none","why":"x"},)"
      R"({"loss":0.02,"length":4096,"min_tokens":1,"max_tokens":9000,"prune":"ftp","kinds":["one_fact"],)"
      R"("unable":["several_keys","x"],"chosen_tasks":true,"held_out":{"score":9,"dense":9,"n":5},)"
      R"("made":{"tasks":[{"task":"niah","used":true},{"task":"ruler/vt","used":false}]}}]})"};
}

bool Run(std::string_view input) {
  static const ModelShape shape = SmallShape(6, 8, 8);
  return Accepts([&] {
    const Calibration calibration = CheckedFor(shape, ParseCalibration(input, "x.json"));
    for (const int64_t tokens : {1, 4096, 100'000}) {
      for (const PromptStates states : {PromptStates::kKept, PromptStates::kDiscarded}) {
        for (const PromptForm form : {PromptForm::kQuestion, PromptForm::kSummary, PromptForm::kText})
          ChooseSetting({calibration}, 0.02, tokens, states, form);
      }
    }
  });
}

}  // namespace

FuzzTarget CalibrationTarget() {
  return {"calibration",
          Seeds,
          {"\"format\"", "\"version\"", "\"entries\"", "\"prune\"", "\"loss\"", "\"held_out\"",
           "\"settings\"", "\"min_tokens\"", "\"none\"", "lazyllm", "sdtp:file=x", "ftp:dense=4", "\"kinds\"",
           "\"unable\"", "\"made\"", "\"tasks\"", "several_keys", "true"},
          Run};
}

}  // namespace coppice
