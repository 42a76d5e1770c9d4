#include "eval/tune/held_out.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace coppice {

namespace {

constexpr double kRounding = 1e-9;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double StandardError(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1) / n);
}

class Picker {
 public:
  Picker(TuneSearch& search, TuneRunner& runner, double deadline, const SearchNote& note)
      : search_(search), runner_(runner), deadline_(deadline), note_(note) {}

  // False where time ran out.
  bool Test(size_t candidate, HeldOut& out) {
    const std::string spec = search_.result().tried[candidate].spec;  // tried may grow
    out = {};
    for (size_t s = 0; s < runner_.samples(); ++s) {
      const double needed = runner_.Expect(s, "none") + runner_.Expect(s, spec);
      if (needed > 0 && runner_.seconds() + needed > deadline_)
        return s >= kForgiving && 2 * s >= runner_.samples();
      const double part = static_cast<double>(s) / static_cast<double>(runner_.samples());
      if (note_)
        note_({fmt::format("held out: {}, sample {}/{}", spec, s + 1, runner_.samples()),
               share + width * part});
      const Trial dense = runner_.Run(s, "none");
      const Trial trial = runner_.Run(s, spec);
      ++out.quality.samples;
      out.quality.score += trial.score;
      out.quality.dense_score += dense.score;
      out.quality.kl += trial.kl;
      out.lost.push_back(dense.score - trial.score);
      out.kl.push_back(trial.kl);
    }
    return true;
  }

  void Fill(Pick& pick) {
    const std::optional<size_t> first = pick.chosen;
    pick.chosen.reset();
    try {
      FillFrom(first, pick);
    } catch (const Cancelled&) {
      pick.interrupted = true;
      pick.why = "the run was interrupted before its setting was tested on the held-out samples";
    }
  }

  double share = 0, width = 0;  // of the tests: before the next, and its own

 private:
  void FillFrom(std::optional<size_t> next, Pick& pick) {
    while (next && pick.rejected.size() < kMostTries) {
      HeldOut held_out;
      if (!Test(*next, held_out)) {
        pick.out_of_time = true;
        pick.why = "the time limit came before its setting was tested on the held-out samples";
        return;
      }
      if (!LosesTooMuch(pick.budget, held_out)) {
        pick.chosen = next;
        pick.held_out = std::move(held_out);
        return;
      }
      pick.rejected.push_back({*next, std::move(held_out)});
      if (pick.rejected.size() < kMostTries) next = search_.Milder(*next, pick.budget, deadline_);
    }
    pick.why =
        fmt::format("{} within the budget on the samples of the search lost more on the held-out samples",
                    pick.rejected.size() == 1 ? "the only setting" : "its settings");
  }

  TuneSearch& search_;
  TuneRunner& runner_;
  double deadline_;
  const SearchNote& note_;
};

// Why the search has no setting of the method.
std::string NothingFound(const SearchResult& result, const Pick& pick) {
  const std::optional<size_t> nearest = result.Nearest(pick.method, pick.budget);
  if (!nearest) {
    const bool waits = std::any_of(result.tried.begin(), result.tried.end(), [&](const Candidate& c) {
      return c.method == pick.method && c.verdict == Verdict::kWaits;
    });
    if (result.out_of_time) return "the time limit came first";
    return waits ? "its settings compute clearly more than the best" : "it stands aside at this length";
  }
  const Candidate& c = result.tried[*nearest];
  const Quality& q = c.quality;
  return fmt::format(
      "nothing within the budget{}: the nearest is {}, with {} of the dense score on {} samples",
      result.out_of_time ? " in the time that there was" : "", c.spec,
      q.dense_score > 0 ? fmt::format("{:.1f} %", 100 * q.score / q.dense_score) : "nothing", q.samples);
}

// A setting that passed for one budget serves every budget that it keeps: the search's order may have led
// another budget to a slower one.
void ShareSettings(const SearchResult& result, std::vector<Pick>& picks) {
  const auto time = [&](const Pick& pick) { return result.tried[*pick.chosen].cost->ttft; };
  for (Pick& pick : picks) {
    for (const Pick& other : picks) {
      if (other.method != pick.method || !other.chosen || LosesTooMuch(pick.budget, other.held_out)) continue;
      if (!Meets(pick.budget, result.tried[*other.chosen].quality)) continue;
      if (pick.chosen && time(pick) <= time(other)) continue;
      pick.chosen = other.chosen;
      pick.held_out = other.held_out;
      pick.why.clear();
    }
  }
}

}  // namespace

Interval HeldOut::score_interval() const {
  const auto n = static_cast<double>(quality.samples);
  return WilsonInterval(quality.score / std::max(n, 1.0), n);
}

double HeldOut::loss() const { return quality.dense_score > 0 ? 1 - quality.score / quality.dense_score : 0; }

Interval HeldOut::loss_interval() const {
  const double dense = quality.dense_score / std::max(static_cast<double>(quality.samples), 1.0);
  const Interval interval = PairedInterval(lost);
  return dense > 0 ? Interval{interval.low / dense, interval.high / dense} : interval;
}

bool LosesTooMuch(const QualityBudget& budget, const HeldOut& held_out) {
  const Quality& q = held_out.quality;
  if (q.samples == 0) return false;
  const double lost = q.dense_score - q.score;
  const double forgiven = q.samples >= kForgiving ? 1.0 : 0.0;
  if (budget.score_loss && lost > std::max(*budget.score_loss * q.dense_score, forgiven) + kRounding)
    return true;
  const double kl = q.kl / static_cast<double>(q.samples);
  return budget.kl && kl > *budget.kl + StandardError(held_out.kl) + kRounding;
}

std::vector<Pick> PickSettings(TuneSearch& search, const std::vector<QualityBudget>& budgets,
                               TuneRunner& held_out, double deadline, const SearchNote& note) {
  std::vector<Pick> picks;
  for (const QualityBudget& budget : budgets) {
    for (const std::string& method : search.result().methods) {
      picks.push_back({.method = method, .budget = budget});
      const std::vector<size_t> within = search.result().WithinBudget(method, budget);
      if (!within.empty()) picks.back().chosen = within.front();
      if (!within.empty() && !search.result().tried[within.front()].cost) {
        picks.back().chosen.reset();
        picks.back().out_of_time = true;
        picks.back().why =
            fmt::format("{} keeps the budget on the samples of the search, and there was no time to test it",
                        search.result().tried[within.front()].spec);
      }
      if (within.empty()) picks.back().why = NothingFound(search.result(), picks.back());
    }
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < picks.size(); ++i) {
    if (picks[i].chosen) order.push_back(i);
  }
  const auto time = [&](size_t i) { return search.result().tried[*picks[i].chosen].cost->ttft; };
  std::vector<double> times(picks.size());
  for (const size_t i : order) times[i] = time(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return times[a] < times[b]; });
  // The fastest of each budget before the others: a result for each is worth more than one for each method.
  std::vector<size_t> firsts;
  for (const QualityBudget& budget : budgets) {
    const auto found =
        std::find_if(order.begin(), order.end(), [&](size_t i) { return picks[i].budget == budget; });
    if (found != order.end()) firsts.push_back(*found);
  }
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return std::find(firsts.begin(), firsts.end(), i) != firsts.end(); });
  Picker picker(search, held_out, deadline, note);
  for (size_t i = 0; i < order.size(); ++i) {
    picker.width = 1 / static_cast<double>(order.size());
    picker.share = static_cast<double>(i) * picker.width;
    picker.Fill(picks[order[i]]);
  }
  ShareSettings(search.result(), picks);
  return picks;
}

const Pick* BestPick(const std::vector<Pick>& picks, const QualityBudget& budget,
                     const SearchResult& result) {
  const Pick* best = nullptr;
  double best_time = 1;
  for (const Pick& pick : picks) {
    if (!pick.chosen || pick.budget != budget) continue;
    const double time = result.tried[*pick.chosen].cost->ttft;
    if (time < best_time) {
      best = &pick;
      best_time = time;
    }
  }
  return best;
}

}  // namespace coppice
