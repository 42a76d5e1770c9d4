// The time that this process computed, over all its threads.
#pragma once

#include <ctime>

namespace coppice {

inline double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace coppice
