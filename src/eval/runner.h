// Runs tasks x lengths x samples x arms on one engine: every arm answers the same samples, dense first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/arm.h"
#include "eval/task.h"

namespace coppice {

struct EvalOptions {
  std::vector<std::string> tasks;  // names, or groups
  std::vector<std::string> prune;  // arms beside dense
  // Empty: 4,096 for tasks that are made to a length, the context for texts that are cut.
  std::vector<int64_t> lengths = {};
  int64_t samples = 20;
  uint64_t seed = 1;
  int64_t depths = 10;
  int64_t distractors = 8;
  std::vector<std::string> data = {};  // folders
  std::string haystack = {};           // a text file; empty: generated sentences
  std::string jieba = {};              // the folder of jieba's data; empty: Debian's
  bool chat = false;
  Protection protection = {};
  bool skip_missing = false;  // tasks named themselves are left out, too, where their data are missing
  std::string folder;         // gets samples.jsonl, results.json and report.html
};

// Throws Error for options that do not fit each other or the engine.
void Check(const EvalOptions& options, const Engine& engine);

struct EvalResult {
  std::vector<ResultRow> rows;       // of results.json
  std::vector<std::string> skipped;  // why tasks of a group were left out: their data is missing
};

struct EvalProgress {
  std::string label;  // "ruler/vt 4096, sample 3/20, ftp"
  double share = 0;   // of the whole run, in [0, 1]
};

// Runs the samples that samples.jsonl does not have yet; results.json is rewritten every few seconds,
// report.html at the end. `model` names the model in the settings. Throws Error, naming task and sample if
// one of them is the cause, and Cancelled; samples done before that are kept in both files.
EvalResult Evaluate(const EvalOptions& options, const std::string& model, Engine& engine,
                    const std::atomic<bool>* cancelled,
                    const std::function<void(const EvalProgress& progress)>& progress);

}  // namespace coppice
