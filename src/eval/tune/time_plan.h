// How long a run of `coppice tune` takes, and how many samples fit into its time limit.
//
// The unit is a dense answer: its time is known after two of them. A setting that answers a sample takes
// about kTrialRuns of it. The plan reserves what comes after the search: the dense answers of the held-out
// half, the test of some settings on it, and the timing.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace coppice {

// Of a dense answer's time, for a setting's answer. An assumption: what tune looks for takes less than dense.
inline constexpr double kTrialRuns = 0.6;
inline constexpr double kQuickMinutes = 6;
inline constexpr size_t kQuickSamples = 4;  // of a task and half

// What a run has to do.
struct TuneWork {
  size_t tasks = 1;          // that dense answers
  size_t most_per_half = 1;  // samples of a task in either half
  size_t settings = 1;       // that the search tries
  size_t methods = 1;        // whose settings they are
  double dense_seconds = 0;  // of one answer
  double limit_seconds = std::numeric_limits<double>::infinity();
};

struct TunePlan {
  size_t tasks = 1;     // the first so many; fewer than there are only if one sample of each takes too long
  size_t per_half = 1;  // samples of each of these tasks, in either half
  double seconds = 0;   // that the run takes: at most the limit
  double whole = 0;     // that it would take without a limit
  bool is_limited = false;  // the limit ends the search, or leaves samples out
};

// Never plans fewer than one task with one sample in each half, even where the limit has no room for them.
TunePlan PlanTune(const TuneWork& work);

// What comes behind a search, for which time is reserved.
struct TuneReserve {
  size_t timed = 3;          // settings that are timed
  size_t timed_samples = 1;  // on so many samples
  size_t rounds = 3;         // in turn with dense
  size_t tested = 2;         // settings that the held-out half tests
};
// Of a limit that has room for so many dense answers.
TuneReserve ReserveFor(double dense_runs);

// What must be left when the search of `samples` samples ends, for the held-out half, whose dense answers are
// not known yet, and with `timing` for that, too. In seconds.
double SecondsBehindSearch(size_t samples, const TuneReserve& reserve, bool timing, double dense_seconds);
// For timing `specs` settings in turn with dense: `rounds` rounds on `samples` samples, and one run to warm.
double TimingSeconds(size_t specs, size_t samples, size_t rounds, double dense_seconds);

// "about 48 minutes", "less than a minute"
std::string DurationText(double seconds);
// "9 tasks, 4 samples of each to search on and as many to test on, 11 s for a dense answer: about 48 minutes;
// --quick: about 6 minutes". `quick`: seconds of a run with --quick, or 0 where this is one.
std::string EstimateText(const TunePlan& plan, double dense_seconds, double quick);

}  // namespace coppice
