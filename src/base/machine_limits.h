// What the operating system says of this machine, and what it lets this process use of it. `root` is a folder
// in place of /, for tests. A file that is absent, unreadable or of another form is one that says nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace coppice {

// The CPUs whose time the process's control group, or one around it, may use (cgroups 1 and 2): 1.5 for
// "150000 100000" in cpu.max. Nothing if there is no such limit.
std::optional<double> CpuQuota(const std::string& root = "");

// The least memory limit of the process's control group and of those around it (cgroups 1 and 2).
std::optional<int64_t> GroupMemoryLimit(const std::string& root = "");

// The cores of all sockets, of which each may run several threads. 0: unknown.
int PhysicalCores(const std::string& root = "");

// Bytes of proc(5)'s meminfo; 0 where it says nothing.
struct SystemMemory {
  int64_t total = 0;
  int64_t available = 0;
  int64_t swap_total = 0;
  int64_t swap_free = 0;
};
SystemMemory ReadSystemMemory(const std::string& root = "");

// The chosen mode of transparent huge pages: "always", "madvise" or "never". Empty: unknown.
std::string TransparentHugePages(const std::string& root = "");

// The programs that ran or wanted to, on average over the last minute.
std::optional<double> LoadAverage(const std::string& root = "");

}  // namespace coppice
