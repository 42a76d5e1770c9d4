// How much time a job that generates may take for itself while others wait, as for masks of tokens that take
// long.
#pragma once

namespace coppice {

// A bucket of seconds (Turner's leaky bucket as a meter, IEEE Communications 24(10), 1986): it fills at a
// share of the time, own time empties it, and a job with an empty one rests until it holds some again. So
// within any `t` seconds a job takes at most share * t + kMostSaved, and what it does between two calls of
// Book.
class OwnShare {
 public:
  // Sampling from a large vocabulary takes some milliseconds now and then.
  static constexpr double kMostSaved = 0.02;
  // What a rest saves up: as long as the shortest turn (SchedulerOptions), so that passing the turn costs
  // little.
  static constexpr double kOneTurn = 0.004;

  // A job begins.
  void Begin() { *this = {}; }
  // It took `own` seconds for itself of the `elapsed` ones since the last call or, after a rest, since its
  // end; `share` of these are its own.
  void Book(double own, double elapsed, double share);
  // Nobody waits, so what it took too much is nobody's.
  void Forgive();
  // The seconds that the job must rest now; 0: it may go on.
  double Rest(double share) const;
  // The job has rested as long as Rest said, or nobody waits any more.
  void Rested();
  // It had to rest lately, and has not saved up everything again: jobs that do share one share.
  bool slow() const { return slow_; }

 private:
  double saved_ = kMostSaved;  // seconds
  bool slow_ = false;
};

}  // namespace coppice
