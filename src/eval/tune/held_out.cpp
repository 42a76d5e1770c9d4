#include "eval/tune/held_out.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
      if (runner_.seconds() >= deadline_) return false;
      if (note_) note_({fmt::format("held out: {}, sample {}/{}", spec, s + 1, runner_.samples()), share});
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
    std::optional<size_t> next = pick.chosen;
    pick.chosen.reset();
    while (next && pick.rejected.size() < kMostTries) {
      HeldOut held_out;
      if (!Test(*next, held_out)) {
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

  double share = 0;

 private:
  TuneSearch& search_;
  TuneRunner& runner_;
  double deadline_;
  const SearchNote& note_;
};

// Why the search has no setting of the method.
std::string NothingFound(const SearchResult& result, const Pick& pick) {
  const std::optional<size_t> nearest = result.Nearest(pick.method, pick.budget);
  if (!nearest) return result.out_of_time ? "the time limit came first" : "it stands aside at this length";
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
  if (budget.score_loss && lost > std::max(*budget.score_loss * q.dense_score, 1.0) + kRounding) return true;
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
  Picker picker(search, held_out, deadline, note);
  for (size_t i = 0; i < order.size(); ++i) {
    picker.share = static_cast<double>(i) / static_cast<double>(order.size());
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
