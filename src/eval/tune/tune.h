// coppice tune: for each method, and over all, the cheapest setting that keeps a model's answers within a
// quality budget.
//
// Each length is tuned separately. Tasks that the dense model cannot do are left out. The search uses one
// half of the samples (search.h), the other half tests its settings (held_out.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "eval/runner.h"
#include "eval/tune/held_out.h"
#include "eval/tune/search.h"

namespace coppice {

struct TuneOptions {
  // Tasks (empty: DefaultTasks), lengths, and the number of samples, searched and held out together. `prune`
  // must be empty. `folder` gets tune.jsonl, from which a run resumes, and tune.json.
  EvalOptions eval;
  std::vector<std::string> methods = {};  // as GridOf takes them; empty: TunedMethods() and compositions
  std::vector<QualityBudget> budgets = {};
  double least = 0.8;   // of dense's mean score, for a task to be used
  double minutes = 30;  // that the run may take; 0: no limit
  size_t most_steps = 12;
};

// Generated tasks that a model can do if it uses its prompt; with `has_data` also tasks that need data files.
std::vector<std::string> DefaultTasks(bool has_data);

// A task at one length, and whether the search used it.
struct TaskUse {
  std::string task;
  int64_t length = 0;
  size_t samples = 0;      // of the search's half that dense answered
  double dense_score = 0;  // their mean
  bool used = false;
  std::string why = {};  // why not
};

struct RangeResult {
  int64_t length = 0;
  int64_t min_tokens = 0, max_tokens = 0;  // that a setting found here is good for
  std::vector<TaskUse> tasks = {};
  SearchResult search = {};
  std::vector<Pick> picks = {};
  std::string why = {};  // why nothing was searched
};

struct TuneResult {
  std::vector<RangeResult> ranges;
  std::vector<std::string> skipped;  // tasks whose data are absent
};

// A setting serves prompts from nine tenths of the length that it was measured at to three halves of it.
// Shares of a shorter prompt are fewer tokens, and settings fail there soon: one that found 76 of 76 needles
// at 2,400 tokens found 13 of 100 at 2,048.
int64_t LeastCovered(int64_t length);
int64_t MostCovered(int64_t length);

// Runs what tune.jsonl does not have yet: a run with another budget or other methods on the same samples
// reuses its results. Runs for quality reuse prefixes from the engine's document cache, if it has one; timed
// runs never do. Throws Error, also if no candidate computes less than dense, and Cancelled; finished results
// are kept.
TuneResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                const std::atomic<bool>* cancelled, const SearchNote& note);

// "answered all", "over the budget", ...
const char* VerdictText(Verdict verdict);

}  // namespace coppice
