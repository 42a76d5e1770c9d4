#include "base/machine_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace coppice {

namespace {

// A control group without a limit of its memory has one of almost 2^63 bytes in cgroups 1.
constexpr int64_t kNoMemoryLimit = int64_t{1} << 60;

template <typename Value>
std::optional<Value> NumberIn(const std::string& path) {
  std::ifstream file(path);
  Value value{};
  if (!(file >> value)) return std::nullopt;
  return value;
}

// A container may see its own group at the top of the mounted folder, while `group` is the path outside. So
// all folders on the way are visited; those that do not exist set no limit.
void VisitFolders(const std::string& mounted, std::string group,
                  const std::function<void(const std::string& folder)>& visit) {
  visit(mounted);
  for (; group.size() > 1; group.resize(group.rfind('/'))) visit(mounted + group);
}

// Calls `unified` with each folder of the process's group of cgroups 2, and `split` with each of its group of
// `controller` in cgroups 1. Lines of /proc/self/cgroup are "0::/group" (cgroups 2) or "4:cpu,cpuacct:/group"
// (cgroups 1); the folder of the latter has the name of all its controllers or of one.
void VisitGroups(const std::string& root, std::string_view controller,
                 const std::function<void(const std::string& folder)>& unified,
                 const std::function<void(const std::string& folder)>& split) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t names = line.find(':') + 1;
    const size_t path = line.find(":/", names);
    if (names == 0 || path == std::string::npos) continue;
    const std::string list = line.substr(names, path - names);
    const std::string group = line.substr(path + 1);
    if (list.empty()) {
      VisitFolders(root + "/sys/fs/cgroup", group, unified);
    } else if (fmt::format(",{},", list).find(fmt::format(",{},", controller)) != std::string::npos) {
      VisitFolders(fmt::format("{}/sys/fs/cgroup/{}", root, controller), group, split);
      if (list != controller) VisitFolders(fmt::format("{}/sys/fs/cgroup/{}", root, list), group, split);
    }
  }
}

template <typename Value>
void KeepLess(std::optional<Value>& least, Value value) {
  least = least ? std::min(*least, value) : value;
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  std::optional<double> least;
  const auto keep = [&](double quota, double period) {
    if (quota > 0 && period > 0 && std::isfinite(quota / period)) KeepLess(least, quota / period);
  };
  const auto unified = [&](const std::string& folder) {
    std::ifstream file(folder + "/cpu.max");  // "max 100000" or "150000 100000"
    double quota = 0;
    double period = 0;
    if (file >> quota >> period) keep(quota, period);
  };
  const auto split = [&](const std::string& folder) {  // a quota of -1: none
    keep(NumberIn<double>(folder + "/cpu.cfs_quota_us").value_or(0),
         NumberIn<double>(folder + "/cpu.cfs_period_us").value_or(0));
  };
  VisitGroups(root, "cpu", unified, split);
  return least;
}

std::optional<int64_t> GroupMemoryLimit(const std::string& root) {
  std::optional<int64_t> least;
  const auto keep = [&](const std::string& path) {
    const std::optional<int64_t> bytes = NumberIn<int64_t>(path);
    if (bytes && *bytes >= 0 && *bytes < kNoMemoryLimit) KeepLess(least, *bytes);
  };
  VisitGroups(
      root, "memory", [&](const std::string& folder) { keep(folder + "/memory.max"); },
      [&](const std::string& folder) { keep(folder + "/memory.limit_in_bytes"); });
  return least;
}

int PhysicalCores(const std::string& root) {
  std::ifstream info(root + "/proc/cpuinfo");
  std::set<std::pair<std::string, std::string>> cores;  // of a socket, and its core
  std::string socket;
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 1);
    if (line.starts_with("physical id")) socket = value;
    if (line.starts_with("core id")) cores.emplace(socket, value);
  }
  return static_cast<int>(cores.size());
}

SystemMemory ReadSystemMemory(const std::string& root) {
  SystemMemory memory;
  std::ifstream info(root + "/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view name = std::string_view(line).substr(0, colon);
    int64_t* const to = name == "MemTotal"       ? &memory.total
                        : name == "MemAvailable" ? &memory.available
                        : name == "SwapTotal"    ? &memory.swap_total
                        : name == "SwapFree"     ? &memory.swap_free
                                                 : nullptr;
    int64_t kibibytes = 0;
    if (to == nullptr || !(std::istringstream(line.substr(colon + 1)) >> kibibytes)) continue;
    if (kibibytes > 0 && kibibytes < kNoMemoryLimit / 1024) *to = kibibytes * 1024;
  }
  return memory;
}

std::string TransparentHugePages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;) {  // "always [madvise] never"
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "";
}

std::optional<double> LoadAverage(const std::string& root) {
  return NumberIn<double>(root + "/proc/loadavg");
}

}  // namespace coppice
