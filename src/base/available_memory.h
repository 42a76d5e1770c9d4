// An estimate of the memory that a process may take.
#pragma once

#include <cstdint>
#include <string>

namespace coppice {

// The system's estimate of the bytes that programs can take without swapping (MemAvailable of proc(5)). If
// the process's control group, or one around it, has a lower limit (cgroups 1 and 2), that limit, whatever
// the group uses of it already. 0 if the system does not say. `root` is a folder in place of /, for tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace coppice
