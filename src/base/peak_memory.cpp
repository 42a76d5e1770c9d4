#include "base/peak_memory.h"

#include <fstream>
#include <string>

namespace coppice {

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

bool ResetPeakMemory() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;  // resets the high-water mark only
  return refs.good();
}

}  // namespace coppice
