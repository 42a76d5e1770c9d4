// coppice tune: for each method, and over all, the cheapest setting that keeps a model's answers within a
// quality budget.
//
// Every length is tuned on its own. Tasks that the dense model cannot do are left out. One half of the
// samples is searched (search.h), the other half decides about what was found (held_out.h).
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
  // Tasks (none: DefaultTasks), lengths, samples of both halves together, and all that makes them; `prune`
  // stays empty. `folder` gets tune.jsonl, to go on with, and tune.json.
  EvalOptions eval;
  std::vector<std::string> methods = {};  // as GridOf takes them; empty: TunedMethods() and compositions
  std::vector<QualityBudget> budgets = {};
  double least = 0.8;   // of dense's mean score, for a task to be used
  double minutes = 30;  // that the run may take; 0: no limit
  size_t most_steps = 12;
};

// Made tasks that a model with some memory for its prompt can do, and with data those that need it.
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

// Three quarters of a length, and five quarters: so far a setting is trusted beside the length that it was
// measured at.
int64_t LeastCovered(int64_t length);
int64_t MostCovered(int64_t length);

// Runs what tune.jsonl does not hold yet: another budget or other methods on the same samples begin with what
// is known. The quality trials take prefixes from the engine's document cache where it has one; times never
// do. Throws Error, also where no candidate computes less than dense; Cancelled, what was done being kept.
TuneResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                const std::atomic<bool>* cancelled, const SearchNote& note);

// "answered all", "over the budget", ...
const char* VerdictText(Verdict verdict);

}  // namespace coppice
