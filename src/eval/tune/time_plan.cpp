#include "eval/tune/time_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

constexpr double kFewRuns = 60;         // dense answers in the limit: fewer leave time for one setting alone
constexpr double kManyRuns = 300;       // so many leave time for exact timing
constexpr double kSearchRuns = 2.5;     // for each searched sample: what a limited search should have
constexpr double kLeastSearchRuns = 1;  // with one sample of each task
constexpr double kEarlyRuns = 1.5;      // of a setting that soon loses too much

// In dense answers: what the samples of both halves take without the search.
double AroundSearch(double samples, double tested) { return 2 * samples + tested * kTrialRuns * samples; }

double RunsOf(double samples, double search, const TuneReserve& reserve) {
  return samples + search * samples + SecondsBehindSearch(static_cast<size_t>(samples), reserve, true, 1);
}

// Without a limit: every method has one setting that answers all, most settings end after a few answers.
double WholeRuns(const TuneWork& work, double samples) {
  const auto methods = static_cast<double>(work.methods);
  const double full = kTrialRuns * samples * methods;
  const double early = std::min(kEarlyRuns, kTrialRuns * samples) * static_cast<double>(work.settings);
  return AroundSearch(samples, methods) + full + early + TimingSeconds(work.methods, 2, 3, 1);
}

}  // namespace

double TimingSeconds(size_t specs, size_t samples, size_t rounds, double dense_seconds) {
  const auto turns = static_cast<double>(samples * rounds);
  return dense_seconds * (1 + turns * (1 + kTrialRuns * static_cast<double>(specs)));
}

TuneReserve ReserveFor(double dense_runs) {
  if (dense_runs < kFewRuns) return {.timed = 1, .timed_samples = 1, .rounds = 1, .tested = 1};
  return {.timed_samples = dense_runs < kManyRuns ? size_t{1} : size_t{2}};
}

double SecondsBehindSearch(size_t samples, const TuneReserve& reserve, bool timing, double dense_seconds) {
  const auto n = static_cast<double>(samples);
  const double times =
      timing ? TimingSeconds(reserve.timed, reserve.timed_samples, reserve.rounds, dense_seconds) : 0;
  return dense_seconds * (n + static_cast<double>(reserve.tested) * kTrialRuns * n) + times;
}

TunePlan PlanTune(const TuneWork& work) {
  TunePlan plan{.tasks = std::max<size_t>(work.tasks, 1),
                .per_half = std::max<size_t>(work.most_per_half, 1)};
  const double dense = std::max(work.dense_seconds, 1e-9);
  const auto samples = [&] { return static_cast<double>(plan.tasks * plan.per_half); };
  plan.whole = WholeRuns(work, samples()) * dense;
  plan.seconds = plan.whole;
  if (plan.whole <= work.limit_seconds) return plan;
  plan.is_limited = true;
  plan.seconds = work.limit_seconds;
  const double runs = work.limit_seconds / dense;
  const TuneReserve reserve = ReserveFor(runs);
  while (plan.per_half > 1 && RunsOf(samples(), kSearchRuns, reserve) > runs) --plan.per_half;
  while (plan.tasks > 1 && plan.per_half == 1 && RunsOf(samples(), kLeastSearchRuns, reserve) > runs)
    --plan.tasks;
  return plan;
}

std::string DurationText(double seconds) {
  if (seconds < 55) return "less than a minute";
  const auto minutes = static_cast<int64_t>(std::lround(seconds / 60));
  if (minutes < 120) return fmt::format("about {} minute{}", minutes, minutes == 1 ? "" : "s");
  return fmt::format("about {:.1f} hours", seconds / 3600);
}

std::string EstimateText(const TunePlan& plan, double dense_seconds, double quick) {
  std::string text = fmt::format(
      "{} task{}, {} sample{} of each to search on and as many to test on, {:.{}f} s for a dense answer: {}",
      plan.tasks, plan.tasks == 1 ? "" : "s", plan.per_half, plan.per_half == 1 ? "" : "s", dense_seconds,
      dense_seconds < 10 ? 1 : 0, DurationText(plan.seconds));
  if (plan.is_limited) {
    text += fmt::format(", when the time limit (--time-limit) ends the search (all of it: {})",
                        DurationText(plan.whole));
  }
  if (quick > 0 && quick < plan.seconds) text += fmt::format("; --quick: {}", DurationText(quick));
  return text;
}

}  // namespace coppice
