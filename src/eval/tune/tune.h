// coppice tune: for each method, and over all, the cheapest setting that keeps a model's answers within a
// quality budget.
//
// After two dense answers the run's time is estimated, and the samples are chosen that fit into the time
// limit (time_plan.h). Each length is tuned separately. Tasks that the dense model cannot do are left out.
// The search uses one half of the samples (search.h), the other half tests its settings (held_out.h).
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
  double least = 0.5;   // of dense's mean score, for a task to be used
  double minutes = 20;  // that the run may take; 0: no limit
  size_t most_steps = 12;
  bool quick = false;                  // few samples, and only the settings that are likely to help
  bool chosen_tasks = false;           // the user named the tasks: the calibration says so
  std::function<double()> clock = {};  // seconds since some point; empty: the machine's
  // Gets the share of the answer that is being computed, often. May be empty.
  std::function<void(double share)> answering = {};
  // Gets one line for people, as soon as it can be told: the estimate. May be empty.
  std::function<void(const std::string& line)> say = {};
};

// Generated tasks that a model can do if it uses its prompt, one for each kind of question; with `has_data`
// also tasks that need data files.
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
  bool interrupted = false;
};

struct TuneResult {
  std::vector<RangeResult> ranges;
  std::vector<std::string> skipped;  // tasks whose data are absent
  bool interrupted = false;          // the last range has what was found before
};

// A setting serves prompts from nine tenths of the length that it was measured at to three halves of it.
// Shares of a shorter prompt are fewer tokens, and settings fail there soon: one that found 76 of 76 needles
// at 2,400 tokens found 13 of 100 at 2,048.
int64_t LeastCovered(int64_t length);
int64_t MostCovered(int64_t length);

// Runs what tune.jsonl does not have yet: a run with another budget or other methods on the same samples
// reuses its results. Runs for quality reuse prefixes from the engine's document cache, if it has one; timed
// runs never do. The time limit and `cancelled` end the run with what was found before; no answer is begun
// that would, by the times of others, end behind the limit. Throws Error, also if no candidate computes less
// than dense.
TuneResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                const std::atomic<bool>* cancelled, const SearchNote& note);

// "tested 9 settings of 3 methods on up to 20 samples, ...": what was done, and what ended it.
std::string HowFar(const RangeResult& range);

// "answered all", "over the budget", ...
const char* VerdictText(Verdict verdict);

}  // namespace coppice
