#include "base/available_memory.h"

#include <algorithm>

#include "base/machine_limits.h"

namespace coppice {

int64_t AvailableMemoryBytes(const std::string& root) {
  const int64_t available = ReadSystemMemory(root).available;
  return std::min(available, GroupMemoryLimit(root).value_or(available));
}

}  // namespace coppice
