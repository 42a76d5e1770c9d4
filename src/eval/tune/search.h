// Finds the cheapest setting of each method within each of several quality budgets, with few answers. Costs
// and answers come from a TuneRunner, so that the search can be tested on known data.
//
// 1. Settings that are likely to help (SearchOptions::first) come first, in their order.
// 2. Each method's settings are planned (a dry run) and sorted by their FLOPs; those that save none are left
//    out. A race: it tries settings from the cheapest on, in growing steps, until one keeps every budget;
//    then the skipped settings, from the cheapest on. A setting answers samples until it has lost more than
//    every open budget allows, or has answered all.
// 3. The cheapest setting of all is joined by methods that may save more, and those compositions race too.
// 4. Each method's setting is refined one coordinate at a time, to cheaper neighbours, in steps of two sizes.
// 5. The winners alternate with dense runs, which measure their time to first token.
//
// Samples that most settings failed come first. If a budget allows several lost answers, the first few
// samples come in random order instead, and a setting ends there if its losses would be too unlikely (0.5 %)
// within the budget.
//
// A sample is not begun if it would end behind the time that there is. Limited time is divided by the grids'
// weights, but each method gets enough for a few settings that answer
// all samples; once too little is left, the remaining methods are not tried. Time that a method does not use
// goes to the methods after it. No time goes to settings that compute clearly more than the best of any
// method.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "eval/tune/budget.h"
#include "eval/tune/grid.h"

namespace coppice {

// One sample under one spec.
struct Trial {
  double score = 0;    // in [0, 1]
  double kl = 0;       // from dense, in nats
  bool active = true;  // the method acted
};

// Shares of dense's cost.
struct Cost {
  double ttft = 1;
  double flops = 1;  // of the prefill, as they were counted
};

class TuneRunner {
 public:
  virtual ~TuneRunner() = default;
  virtual size_t samples() const = 0;
  // Runs the sample, or returns its recorded result. "none" is dense.
  virtual Trial Run(size_t sample, const std::string& spec) = 0;
  // The planned FLOPs of the prefill over dense's. Throws Error for a spec that the model cannot have.
  virtual double FlopsShare(const std::string& spec) = 0;
  // Medians over rounds in which all specs alternate with dense.
  virtual std::vector<Cost> Time(const std::vector<std::string>& specs) = 0;
  // Since some point in the past; never goes back.
  virtual double seconds() const = 0;
  // The approximate time of one more run.
  virtual double RunSeconds() = 0;
  // Of this run; 0 if its result is known.
  virtual double Expect(size_t /*sample*/, const std::string& /*spec*/) { return RunSeconds(); }
  // The approximate time that Time() takes for so many specs.
  virtual double TimingTakes(size_t /*specs*/) { return 0; }
  // The spec with every key written out, where that is known.
  virtual std::string Full(const std::string& spec) { return spec; }
};

enum class Verdict {
  kWaits,  // was not needed, or time ran out
  kDone,   // answered all samples
  kOver,   // lost more than the budgets that were still open
  kAside,  // the method stood aside: it is dense
};

struct Candidate {
  std::string method;  // as MethodGrid::name
  std::string spec;
  double flops = 1;                 // planned
  Quality quality = {};             // over the samples that it answered
  std::vector<bool> answered = {};  // [samples]
  Verdict verdict = Verdict::kWaits;
  std::optional<Cost> cost = {};  // where it was timed

  double mean_kl() const;
};

struct SearchOptions {
  std::vector<QualityBudget> budgets;                            // one at least
  size_t most_steps = 12;                                        // of refinement, for each method and budget
  std::vector<std::string> first = {};                           // specs that are tried before the grids
  double seconds = std::numeric_limits<double>::infinity();      // that the search may take
  double timed_until = std::numeric_limits<double>::infinity();  // of runner.seconds(): when timing must end
  // Grids around the best setting, tried when each method has its own; may be empty.
  std::function<std::vector<MethodGrid>(const std::string& spec)> compose = {};
};

struct SearchResult {
  std::vector<Candidate> tried;
  std::vector<std::string> methods;  // in the order in which they were tried, compositions last
  std::vector<std::string> untried;  // methods that there was no time for
  double dense_score = 0;            // mean
  size_t samples = 0;                // that dense answered
  bool out_of_time = false;          // something was left out

  // Settings of `method` that meet the budget on all samples, the cheapest first.
  std::vector<size_t> WithinBudget(const std::string& method, const QualityBudget& budget) const;
  // Of the settings that do not, the one that uses the least of the budget; empty if none answered a sample.
  std::optional<size_t> Nearest(const std::string& method, const QualityBudget& budget) const;
  // Of the cheapest setting of any method that meets the budget on all samples.
  std::optional<double> BestFlops(const QualityBudget& budget) const;
  // The share of dense's score that a setting keeps at most: it may have lost too much after a few answers.
  double KeepsAtMost(const Candidate& c) const;
  // Of the settings that answered all or lost too much, those that keep more than every cheaper one; the
  // cheapest first.
  std::vector<size_t> Frontier() const;
};

struct SearchProgress {
  std::string label;  // the current step
  double share = 0;   // of the work, by an estimate that never goes back
  double left = 0;    // seconds, as far as can be told; 0: unknown
};
using SearchNote = std::function<void(const SearchProgress& progress)>;

class TuneSearch {
 public:
  // `note` may be empty. All three must outlive the search.
  TuneSearch(const SearchOptions& options, TuneRunner& runner, const SearchNote& note);

  // Throws Error if a budget cannot be judged: a share of a dense score of 0. After Cancelled the result has
  // what was found before.
  void Run(const std::vector<MethodGrid>& grids);

  // After `tried[than]` failed elsewhere: the method's next setting that computes clearly more and is within
  // the budget, timed; empty if there is none, or if `deadline` (a time of runner.seconds()) comes first.
  std::optional<size_t> Milder(size_t than, const QualityBudget& budget, double deadline);

  const SearchResult& result() const { return result_; }

 private:
  bool IsLate(double deadline, double needed = 0);
  void Note(const std::string& label, double share);
  void RunDense();
  std::optional<size_t> Add(const std::string& method, const std::string& spec, double most_flops);
  size_t NextSample(const Candidate& c) const;
  void Follow(size_t index, const std::vector<QualityBudget>& open, double deadline);
  bool IsHopeless(const QualityBudget& budget, const Candidate& c) const;
  double AllAnswersSeconds() { return static_cast<double>(runner_.samples()) * runner_.RunSeconds(); }
  bool CannotWin(double flops, const std::vector<QualityBudget>& open) const;
  void AddMethod(const std::string& name);
  void First(double deadline);
  void Races(const std::vector<MethodGrid>& grids, double deadline, double from, double to);
  void Race(const MethodGrid& grid, double deadline);
  std::vector<bool> Gallop(const std::vector<size_t>& order, double deadline);
  bool FollowIfCheaper(const std::string& method, size_t index, double deadline);
  std::vector<std::string> BestSpecs() const;
  void Refine(double deadline);
  bool RefineOnce(const std::string& method, const QualityBudget& budget, double step, double deadline,
                  size_t& steps);
  void Time(const std::vector<size_t>& candidates);
  void TimeWinners();

  const SearchOptions& options_;
  TuneRunner& runner_;
  const SearchNote& note_;
  std::vector<Trial> dense_;  // [samples]
  double dense_total_ = 0;
  std::vector<int> failed_;      // [samples]: by how many candidates
  std::set<std::string> specs_;  // that were planned
  double share_ = 0;
  SearchResult result_;
};

}  // namespace coppice
