#include "base/available_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace coppice {

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number in the file; kNoLimit if there is none, as in "max".
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? bytes : kNoLimit;
}

// A container may see its own group at the top of the mounted folder, while `group` is the path outside. So
// all folders on the way are read; those that do not exist set no limit.
int64_t LeastLimit(const std::string& mounted, std::string group, const std::string& file) {
  int64_t least = LimitIn(mounted + "/" + file);
  for (; group.size() > 1; group.resize(group.rfind('/')))
    least = std::min(least, LimitIn(fmt::format("{}{}/{}", mounted, group, file)));
  return least;
}

// Lines of /proc/self/cgroup are "0::/group" (cgroups 2) or "4:cpu,memory:/group" (cgroups 1).
int64_t GroupLimit(const std::string& root) {
  int64_t least = kNoLimit;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t names = line.find(':') + 1;
    const size_t path = line.find(":/", names);
    if (names == 0 || path == std::string::npos) continue;
    const std::string list = "," + line.substr(names, path - names) + ",";
    const std::string group = line.substr(path + 1);
    if (list == ",,") {
      least = std::min(least, LeastLimit(root + "/sys/fs/cgroup", group, "memory.max"));
    } else if (list.find(",memory,") != std::string::npos) {
      least = std::min(least, LeastLimit(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    int64_t kibibytes = 0;
    if (word == "MemAvailable:" && meminfo >> kibibytes) return std::min(kibibytes * 1024, GroupLimit(root));
  }
  return 0;
}

}  // namespace coppice
