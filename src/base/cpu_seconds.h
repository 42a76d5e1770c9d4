// Time spent computing, which other load on the machine does not add to.
#pragma once

#include <ctime>

namespace coppice {

inline double SecondsOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of this process, over all its threads; and of the calling thread.
inline double CpuSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }
inline double ThreadCpuSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace coppice
