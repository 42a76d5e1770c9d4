#include "base/machine_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/memory_rate.h"
#include "test_files.h"

namespace coppice {
namespace {

class MachineLimits : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::string file = dir_.path() + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  const std::string& root() const { return dir_.path(); }

 private:
  TempFolder dir_;
};

TEST_F(MachineLimits, ASystemThatSaysNothing) {
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  EXPECT_EQ(GroupMemoryLimit(root()), std::nullopt);
  EXPECT_EQ(PhysicalCores(root()), 0);
  EXPECT_EQ(ReadSystemMemory(root()).total, 0);
  EXPECT_EQ(TransparentHugePages(root()), "");
  EXPECT_EQ(LoadAverage(root()), std::nullopt);
}

TEST_F(MachineLimits, QuotaOfControlGroups2) {
  Write("/proc/self/cgroup", "0::/a.slice/b\n");
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  Write("/sys/fs/cgroup/a.slice/b/cpu.max", "max 100000\n");
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  Write("/sys/fs/cgroup/a.slice/cpu.max", "250000 100000\n");  // of the group around it
  EXPECT_EQ(CpuQuota(root()), 2.5);
  Write("/sys/fs/cgroup/a.slice/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(CpuQuota(root()), 0.5);
  Write("/sys/fs/cgroup/cpu.max", "10000 100000\n");  // a container's, which is mounted at the top
  EXPECT_EQ(CpuQuota(root()), 0.1);
}

TEST_F(MachineLimits, QuotaOfControlGroups1) {
  const std::string groups = "/sys/fs/cgroup";
  Write("/proc/self/cgroup", "4:cpuset:/other\n2:cpu,cpuacct:/docker/c\n0::/\n");
  Write(groups + "/cpuset/other/cpu.cfs_quota_us", "1000\n");
  Write(groups + "/cpuset/other/cpu.cfs_period_us", "100000\n");
  Write(groups + "/cpu/docker/c/cpu.cfs_quota_us", "-1\n");
  Write(groups + "/cpu/docker/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  Write(groups + "/cpu/docker/cpu.cfs_quota_us", "400000\n");  // without a period: says nothing
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  Write(groups + "/cpu/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root()), 4);
  Write(groups + "/cpu,cpuacct/docker/c/cpu.cfs_quota_us", "150000\n");  // mounted under both names
  Write(groups + "/cpu,cpuacct/docker/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root()), 1.5);
}

TEST_F(MachineLimits, FilesOfAnotherFormSayNothing) {
  Write("/proc/self/cgroup", "no colons\n::\n0::/a\n0:\n\n");
  for (const char* text :
       {"", "max\n", "-5 100000\n", "5 0\n", "1e308 1e-308\n", "nan nan\n", "100000\n", "x y\n"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(CpuQuota(root()), std::nullopt) << text;
  }
  for (const char* text : {"", "max\n", "-1\n", "99999999999999999999\n", "9223372036854771712\n"}) {
    Write("/sys/fs/cgroup/a/memory.max", text);
    EXPECT_EQ(GroupMemoryLimit(root()), std::nullopt) << text;
  }
  Write("/proc/meminfo",
        "MemTotal\nMemTotal: x kB\nMemAvailable: -5 kB\nSwapTotal: 99999999999999999 kB\n:\n");
  const SystemMemory memory = ReadSystemMemory(root());
  EXPECT_EQ(memory.total, 0);
  EXPECT_EQ(memory.available, 0);
  EXPECT_EQ(memory.swap_total, 0);
  Write("/proc/cpuinfo", "core id\nphysical id\nflags : fpu\n");
  EXPECT_EQ(PhysicalCores(root()), 0);
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [] [\n");
  EXPECT_EQ(TransparentHugePages(root()), "");
  // A folder in place of each file.
  for (const char* path : {"/proc/loadavg", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"})
    std::filesystem::create_directories(root() + path);
  EXPECT_EQ(LoadAverage(root()), std::nullopt);
  EXPECT_EQ(CpuQuota(root()), std::nullopt);
  EXPECT_EQ(GroupMemoryLimit(root()), std::nullopt);
}

TEST_F(MachineLimits, MemoryOfTheSystemAndOfTheGroup) {
  Write("/proc/meminfo",
        "MemTotal:  900 kB\nMemFree: 100 kB\nMemAvailable:   500 kB\nSwapTotal: 64 kB\nSwapFree:  60 kB\n");
  const SystemMemory memory = ReadSystemMemory(root());
  EXPECT_EQ(memory.total, 900 << 10);
  EXPECT_EQ(memory.available, 500 << 10);
  EXPECT_EQ(memory.swap_total, 64 << 10);
  EXPECT_EQ(memory.swap_free, 60 << 10);
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "4096\n");
  EXPECT_EQ(GroupMemoryLimit(root()), 4096);
}

TEST_F(MachineLimits, CoresAreCountedOnce) {
  std::string text;
  for (const char* socket : {"0", "1"}) {
    for (const char* core : {"0", "1", "0", "1", "2"})
      text += std::string("processor : 7\nphysical id\t: ") + socket + "\ncore id\t\t: " + core + "\n\n";
  }
  Write("/proc/cpuinfo", text);
  EXPECT_EQ(PhysicalCores(root()), 6);
}

TEST_F(MachineLimits, HugePagesAndLoad) {
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(TransparentHugePages(root()), "madvise");
  Write("/proc/loadavg", "3.40 2.93 2.51 3/98 26811\n");
  EXPECT_EQ(LoadAverage(root()), 3.4);
}

TEST(MemoryReadRate, IsARate) {
  for (const int threads : {1, 3}) {
    const ThreadPool pool(threads);
    // A word that is not read, or one that is read twice, fails a check of MemoryReadRate.
    for (const int64_t bytes : {8, 8 * 17, (8 << 20) + 8}) {
      const double rate = MemoryReadRate(pool, bytes, 0);
      EXPECT_GT(rate, 0);
      EXPECT_LT(rate, 1e15);
    }
  }
  EXPECT_GE(MoreThanCaches(), 64 << 20);
  EXPECT_LE(MoreThanCaches(), 512 << 20);
}

}  // namespace
}  // namespace coppice
