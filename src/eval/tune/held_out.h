// Tests the search's settings on samples that it has not seen.
//
// The best of many settings on the samples of a search is partly the luckiest, so its score there is too
// high. The other half of the samples decides: for each method and budget, the setting that the search chose
// answers them. If it loses more than the budget, the method's next milder setting is tested, up to three
// settings. Rejected settings are reported, because every further test makes it likelier to pass by luck.
//
// One lost answer is always allowed of kForgiving samples or more: of 50 samples none can show a loss of 1 %.
// A KL budget may be exceeded by one standard error of the mean. A test that the time limit ends counts if it
// has answered half of the samples, and kForgiving of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/intervals.h"
#include "eval/tune/search.h"

namespace coppice {

struct HeldOut {
  Quality quality = {};
  std::vector<double> lost = {};  // dense's score less the setting's, by sample
  std::vector<double> kl = {};    // by sample

  Interval score_interval() const;  // of the mean score, 95 %
  double loss() const;              // share of dense's score; below 0 where it gained
  Interval loss_interval() const;   // of it, 95 %, from the paired differences
};

bool LosesTooMuch(const QualityBudget& budget, const HeldOut& held_out);

// A method's setting for one budget.
struct Pick {
  std::string method;
  QualityBudget budget;
  std::optional<size_t> chosen = {};  // of SearchResult::tried
  HeldOut held_out = {};              // of the chosen
  struct Rejected {
    size_t candidate;
    HeldOut held_out;
  };
  std::vector<Rejected> rejected = {};
  std::string why = {};  // why there is no setting
  bool interrupted = false;
  bool out_of_time = false;  // its setting was not timed or tested
};

inline constexpr size_t kForgiving = 12;
inline constexpr size_t kMostTries = 3;  // settings of one method and budget

// A pick for every method and budget of a search, testing the fastest of each budget first. `deadline` is a
// time of held_out.seconds(); methods not tested by then, or before a test was cancelled, get no setting.
// `note` may be empty; its shares count the tests.
std::vector<Pick> PickSettings(TuneSearch& search, const std::vector<QualityBudget>& budgets,
                               TuneRunner& held_out, double deadline, const SearchNote& note);

// The fastest setting within a budget; null if none is faster than dense.
const Pick* BestPick(const std::vector<Pick>& picks, const QualityBudget& budget, const SearchResult& result);

}  // namespace coppice
