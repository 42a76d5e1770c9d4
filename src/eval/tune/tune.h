// coppice tune: the fastest schedule of a model within a quality budget, on samples of tasks.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "eval/runner.h"
#include "eval/tune/search.h"

namespace coppice {

struct TuneOptions {
  // Tasks, lengths, samples and all that makes them; `prune` stays empty. `folder` gets tune.jsonl, to go on with, and
  // tune.json.
  EvalOptions eval;
  std::vector<std::string> methods = {};  // as GridOf takes them; empty: TunedMethods()
  SearchOptions search = {};
};

// Runs what tune.jsonl does not hold yet: another budget or other methods on the same samples begin with what is known.
// Throws Error, also where no candidate computes less than dense; Cancelled, what was done being kept.
SearchResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                  const std::atomic<bool>* cancelled, const SearchNote& note);

// "meets the budget", "over the budget", ...
const char* VerdictText(Verdict verdict);

}  // namespace coppice
