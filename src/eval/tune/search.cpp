#include "eval/tune/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace coppice {

namespace {

constexpr double kLeastSaving = 0.99;  // of dense's FLOPs: more is no gain
// Of the best's FLOPs. Smaller steps end close to where answers are lost, for next to nothing.
constexpr double kWorthwhile = 0.97;
constexpr double kSteps[] = {0.3, 0.15};  // of refinement
constexpr double kClearlyMilder = 0.03;   // of dense's FLOPs more
constexpr double kRaceShare = 0.75;       // of the time, for the grids
constexpr double kJoinShare = 0.4;  // of what is left then, for compositions; the rest is for refinement
constexpr size_t kScreened = 8;     // samples that come in random order
constexpr double kTooUnlikely = 0.005;
constexpr double kLeastPart = 1.5;  // of a method's time, in dense runs of all samples
// In limited time, settings that compute so many times the best's FLOPs are not tried: times follow FLOPs
// only roughly, so that a setting that computes a little more may still be faster.
constexpr double kClearlyMore = 1.15;
constexpr double kFirstShare = 0.2;  // of the progress

// The probability of `losses` or more among `n` answers, each of which is lost with probability `p`.
double AtLeast(size_t losses, size_t n, double p) {
  double fewer = 0, term = std::pow(1 - p, static_cast<double>(n));
  if (p >= 1) return 1;
  for (size_t k = 0; k < losses; ++k) {
    fewer += term;
    term *= p / (1 - p) * static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return 1 - fewer;
}

}  // namespace

TuneSearch::TuneSearch(const SearchOptions& options, TuneRunner& runner, const SearchNote& note)
    : options_(options), runner_(runner), note_(note) {}

void TuneSearch::Run(const std::vector<MethodGrid>& grids) {
  const double begin = runner_.seconds();
  const double end = begin + options_.seconds;
  RunDense();
  First(end);
  Races(grids, runner_.seconds() + kRaceShare * (end - runner_.seconds()), kFirstShare, 0.6);
  if (options_.compose) {
    std::vector<MethodGrid> joined;
    for (const std::string& spec : BestSpecs()) {
      for (MethodGrid& grid : options_.compose(spec)) joined.push_back(std::move(grid));
    }
    Races(joined, runner_.seconds() + kJoinShare * (end - runner_.seconds()), 0.6, 0.75);
  }
  Refine(end);
  TimeWinners();
}

// Whether something that takes `needed` seconds would end behind the deadline.
bool TuneSearch::IsLate(double deadline, double needed) {
  const double now = runner_.seconds();
  if (now < deadline && now + needed <= deadline) return false;
  result_.out_of_time = true;
  return true;
}

void TuneSearch::Note(const std::string& label, double share) {
  share_ = std::clamp(share, share_, 1.0);
  if (note_) note_({label, share_});
}

void TuneSearch::RunDense() {
  const size_t n = runner_.samples();
  for (size_t s = 0; s < n; ++s) {
    Note(fmt::format("dense, sample {}/{}", s + 1, n), 0);
    dense_.push_back(runner_.Run(s, "none"));
    dense_total_ += dense_.back().score;
  }
  failed_.resize(n);
  result_.samples = n;
  result_.dense_score = n == 0 ? 0 : dense_total_ / static_cast<double>(n);
  const bool judges_scores = std::any_of(options_.budgets.begin(), options_.budgets.end(),
                                         [](const QualityBudget& b) { return b.score_loss.has_value(); });
  if (judges_scores && dense_total_ <= 0)
    throw Error("the dense model scores 0 on every sample: there is nothing to lose; give a budget kl=BOUND");
}

// Empty if the spec was planned before, is not valid for the model, or needs more than `most_flops` of
// dense's FLOPs.
std::optional<size_t> TuneSearch::Add(const std::string& method, const std::string& spec, double most_flops) {
  if (!specs_.insert(spec).second) return std::nullopt;
  double flops = 1;
  try {
    flops = runner_.FlopsShare(spec);
  } catch (const Error&) {  // not a spec for this model: two stages in one layer, more layers than it has
    return std::nullopt;
  }
  if (flops >= most_flops) return std::nullopt;
  result_.tried.push_back({.method = method, .spec = spec, .flops = flops});
  result_.tried.back().answered.resize(runner_.samples());
  return result_.tried.size() - 1;
}

// The next sample for the candidate: the one that most others failed, then one that dense has right. If a
// budget allows several lost answers, the first few samples come in their own, random order (IsHopeless).
size_t TuneSearch::NextSample(const Candidate& c) const {
  const bool screens =
      std::any_of(options_.budgets.begin(), options_.budgets.end(),
                  [&](const QualityBudget& b) { return b.score_loss && *b.score_loss * dense_total_ >= 2; });
  if (screens && c.quality.samples < std::min(kScreened, c.answered.size())) return c.quality.samples;
  size_t best = SIZE_MAX;
  for (size_t s = 0; s < c.answered.size(); ++s) {
    if (c.answered[s]) continue;
    if (best == SIZE_MAX || failed_[s] > failed_[best] ||
        (failed_[s] == failed_[best] && dense_[s].score > dense_[best].score))
      best = s;
  }
  return best;
}

// Whether the setting lost too many of the first few answers to be within the budget.
bool TuneSearch::IsHopeless(const QualityBudget& budget, const Candidate& c) const {
  if (!CanMeet(budget, c.quality, runner_.samples(), dense_total_)) return true;
  if (!budget.score_loss || c.quality.samples > kScreened) return false;
  if (*budget.score_loss * dense_total_ < 2) return false;  // the samples did not come in random order
  const auto lost = static_cast<size_t>(std::max(c.quality.dense_score - c.quality.score, 0.0));
  return AtLeast(lost, c.quality.samples, *budget.score_loss) < kTooUnlikely;
}

// Answers samples until the candidate exceeds every budget in `open`, or has answered all.
void TuneSearch::Follow(size_t index, const std::vector<QualityBudget>& open, double deadline) {
  Candidate& c = result_.tried[index];
  while (c.verdict == Verdict::kWaits) {
    const size_t s = NextSample(c);
    const double needed = runner_.Expect(s, c.spec);
    if (needed > 0 && IsLate(deadline, needed)) return;
    Note(fmt::format("{}, sample {}/{}", c.spec, c.quality.samples + 1, runner_.samples()), share_);
    const Trial trial = runner_.Run(s, c.spec);
    c.answered[s] = true;
    c.quality.score += trial.score;
    c.quality.dense_score += dense_[s].score;
    c.quality.kl += trial.kl;
    ++c.quality.samples;
    if (trial.score < dense_[s].score) ++failed_[s];
    if (!trial.active) {
      c.verdict = Verdict::kAside;
    } else if (std::all_of(open.begin(), open.end(),
                           [&](const QualityBudget& b) { return IsHopeless(b, c); })) {
      c.verdict = Verdict::kOver;
    } else if (c.quality.samples == runner_.samples()) {
      c.verdict = Verdict::kDone;
    }
  }
}

// Whether limited time is better spent on other settings, for each of the budgets.
bool TuneSearch::CannotWin(double flops, const std::vector<QualityBudget>& open) const {
  if (!std::isfinite(options_.seconds)) return false;
  return std::all_of(open.begin(), open.end(), [&](const QualityBudget& budget) {
    const std::optional<double> best = result_.BestFlops(budget);
    return best && flops > kClearlyMore * *best;
  });
}

void TuneSearch::AddMethod(const std::string& name) {
  if (std::find(result_.methods.begin(), result_.methods.end(), name) == result_.methods.end())
    result_.methods.push_back(name);
}

// The settings that are likely to help, each for the budgets that no cheaper one keeps.
void TuneSearch::First(double deadline) {
  for (size_t i = 0; i < options_.first.size(); ++i) {
    const std::string& spec = options_.first[i];
    Note(spec, kFirstShare * static_cast<double>(i) / static_cast<double>(options_.first.size()));
    const std::optional<size_t> added = Add(NamesOf(spec), spec, kLeastSaving);
    if (!added) continue;
    AddMethod(NamesOf(spec));
    std::vector<QualityBudget> open;
    for (const QualityBudget& budget : options_.budgets) {
      const std::optional<double> best = result_.BestFlops(budget);
      if (!best || result_.tried[*added].flops < *best) open.push_back(budget);
    }
    if (!open.empty()) Follow(*added, open, deadline);
  }
}

// `from` and `to`: of the whole work.
void TuneSearch::Races(const std::vector<MethodGrid>& grids, double deadline, double from, double to) {
  const auto weight = [&](size_t first) {
    return std::accumulate(grids.begin() + static_cast<ptrdiff_t>(first), grids.end(), 0.0,
                           [](double sum, const MethodGrid& grid) { return sum + grid.weight; });
  };
  const double least = kLeastPart * AllAnswersSeconds();
  for (size_t i = 0; i < grids.size(); ++i) {
    const double now = runner_.seconds();
    if (i > 0 && now + least > deadline) {
      result_.untried.push_back(grids[i].name);
      result_.out_of_time = true;
      continue;
    }
    Note(grids[i].name, from + (to - from) * static_cast<double>(i) / static_cast<double>(grids.size()));
    const double part = std::max(deadline - now, 0.0) * grids[i].weight / weight(i);
    Race(grids[i], std::min(now + std::max(part, least), std::max(deadline, now)));
  }
  Note("", to);
}

void TuneSearch::Race(const MethodGrid& grid, double deadline) {
  std::vector<size_t> order;
  for (const std::string& spec : grid.specs) {
    if (const auto added = Add(grid.name, spec, kLeastSaving)) order.push_back(*added);
  }
  if (order.empty()) return;
  AddMethod(grid.name);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return result_.tried[a].flops < result_.tried[b].flops; });
  const std::vector<bool> probed = Gallop(order, deadline);
  // The skipped settings, beginning with those between one that kept a budget and the probe before it.
  for (size_t i = order.size(); i-- > 0;) {
    if (!probed[i] || result_.tried[order[i]].verdict != Verdict::kDone) continue;
    size_t below = i;
    while (below > 0 && !probed[below - 1]) --below;
    for (size_t k = below; k < i && FollowIfCheaper(grid.name, order[k], deadline); ++k) {
    }
  }
  for (size_t k = 0; k < order.size() && FollowIfCheaper(grid.name, order[k], deadline); ++k) {
  }
}

// Probes settings from the cheapest on, in steps that grow with every one that fails, until all budgets are
// kept. Returns which of `order` were probed.
std::vector<bool> TuneSearch::Gallop(const std::vector<size_t>& order, double deadline) {
  std::vector<bool> probed(order.size());
  std::vector<QualityBudget> open = options_.budgets;
  size_t step = 1;
  for (size_t i = 0; i < order.size() && !open.empty() && !IsLate(deadline);) {
    if (CannotWin(result_.tried[order[i]].flops, open)) break;
    Follow(order[i], open, deadline);
    probed[i] = true;
    const Candidate& c = result_.tried[order[i]];
    if (c.verdict == Verdict::kDone)
      std::erase_if(open, [&](const QualityBudget& b) { return Meets(b, c.quality); });
    if (open.empty() || i + 1 == order.size()) break;
    // Near the end of the time a mild setting is better than none.
    const bool hurries = open.size() == options_.budgets.size() &&
                         deadline - runner_.seconds() < kLeastPart * AllAnswersSeconds();
    if (hurries) step = std::max(step, (order.size() - i) / 2);
    size_t next = std::min(i + step, order.size() - 1);
    while (next > i && CannotWin(result_.tried[order[next]].flops, open)) --next;
    if (next == i) break;
    i = next;
    ++step;
  }
  return probed;
}

// False if the time is over. A setting that is not cheaper than the method's best is skipped.
bool TuneSearch::FollowIfCheaper(const std::string& method, size_t index, double deadline) {
  std::vector<QualityBudget> open;
  for (const QualityBudget& budget : options_.budgets) {
    const std::vector<size_t> within = result_.WithinBudget(method, budget);
    if (!within.empty() && result_.tried[index].flops < result_.tried[within.front()].flops)
      open.push_back(budget);
  }
  if (!open.empty()) Follow(index, open, deadline);
  return !IsLate(deadline);
}

// The cheapest setting of any method, for each budget; each once.
std::vector<std::string> TuneSearch::BestSpecs() const {
  std::vector<std::string> specs;
  for (const QualityBudget& budget : options_.budgets) {
    const Candidate* best = nullptr;
    for (const std::string& method : result_.methods) {
      const std::vector<size_t> within = result_.WithinBudget(method, budget);
      if (within.empty()) continue;
      const Candidate& c = result_.tried[within.front()];
      if (best == nullptr || c.flops < best->flops) best = &c;
    }
    if (best != nullptr && std::find(specs.begin(), specs.end(), best->spec) == specs.end())
      specs.push_back(best->spec);
  }
  return specs;
}

// The method with the cheapest setting first, because time may run out.
void TuneSearch::Refine(double deadline) {
  struct Work {
    double flops;
    std::string method;
    QualityBudget budget;
  };
  std::vector<Work> all;
  for (const std::string& method : result_.methods) {
    for (const QualityBudget& budget : options_.budgets) {
      const std::vector<size_t> within = result_.WithinBudget(method, budget);
      if (!within.empty()) all.push_back({result_.tried[within.front()].flops, method, budget});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Work& a, const Work& b) { return a.flops < b.flops; });
  for (size_t i = 0; i < all.size(); ++i) {
    Note("refining " + all[i].method, 0.75 + 0.2 * static_cast<double>(i) / static_cast<double>(all.size()));
    size_t steps = 0;
    for (const double step : kSteps) {
      while (RefineOnce(all[i].method, all[i].budget, step, deadline, steps)) {
      }
    }
  }
}

// True if a cheaper neighbour replaced the method's setting.
bool TuneSearch::RefineOnce(const std::string& method, const QualityBudget& budget, double step,
                            double deadline, size_t& steps) {
  const Candidate best = result_.tried[result_.WithinBudget(method, budget).front()];
  const std::string whole = WithTunedKeys(best.spec, runner_.Full(best.spec));
  for (const Direction& direction : NeighboursOf(whole, step)) {
    for (const std::string& spec : direction.specs) {
      if (steps >= options_.most_steps || IsLate(deadline)) return false;
      const auto added = Add(method, spec, kWorthwhile * best.flops);
      if (!added) continue;
      ++steps;
      Follow(*added, {budget}, deadline);
      const Candidate& c = result_.tried[*added];
      if (c.verdict == Verdict::kDone && Meets(budget, c.quality)) return true;
    }
  }
  return false;
}

void TuneSearch::Time(const std::vector<size_t>& candidates) {
  std::vector<std::string> specs;
  for (const size_t i : candidates) specs.push_back(result_.tried[i].spec);
  const std::vector<Cost> costs = runner_.Time(specs);
  COPPICE_CHECK(costs.size() == candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) result_.tried[candidates[i]].cost = costs[i];
}

void TuneSearch::TimeWinners() {
  std::vector<size_t> winners;
  for (const std::string& method : result_.methods) {
    for (const QualityBudget& budget : options_.budgets) {
      const std::vector<size_t> within = result_.WithinBudget(method, budget);
      if (!within.empty() && std::find(winners.begin(), winners.end(), within.front()) == winners.end())
        winners.push_back(within.front());
    }
  }
  if (winners.empty()) return;
  // Where the time does not suffice for all, those of the fewest FLOPs: the best for each budget among them.
  std::stable_sort(winners.begin(), winners.end(),
                   [&](size_t a, size_t b) { return result_.tried[a].flops < result_.tried[b].flops; });
  std::stable_partition(winners.begin(), winners.end(), [&](size_t w) {
    return std::any_of(options_.budgets.begin(), options_.budgets.end(), [&](const QualityBudget& b) {
      return Meets(b, result_.tried[w].quality) && result_.BestFlops(b) == result_.tried[w].flops;
    });
  });
  while (winners.size() > 1 && IsLate(options_.timed_until, runner_.TimingTakes(winners.size()))) {
    winners.pop_back();
  }
  Note("timing the best of each method, in turn with dense", 0.95);
  Time(winners);
}

std::optional<size_t> TuneSearch::Milder(size_t than, const QualityBudget& budget, double deadline) {
  const std::string method = result_.tried[than].method;
  const double least = result_.tried[than].flops + kClearlyMilder;
  std::vector<size_t> order;
  for (size_t i = 0; i < result_.tried.size(); ++i) {
    if (result_.tried[i].method == method && result_.tried[i].flops >= least) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return result_.tried[a].flops < result_.tried[b].flops; });
  for (const size_t i : order) {
    Follow(i, {budget}, deadline);
    const Candidate& c = result_.tried[i];
    if (c.verdict != Verdict::kDone || !Meets(budget, c.quality)) continue;
    if (!c.cost && IsLate(deadline, runner_.TimingTakes(1))) return std::nullopt;
    if (!c.cost) Time({i});
    return i;
  }
  return std::nullopt;
}

}  // namespace coppice
