#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "test_files.h"

namespace coppice {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(AvailableMemory, IsTheSystemsOrTheGroupsIfThatIsLess) {
  const TempFolder dir;
  const std::string& root = dir.path();
  EXPECT_EQ(AvailableMemoryBytes(root), 0);
  Write(root + "/proc/meminfo", "MemTotal:  900 kB\nMemFree:   100 kB\nMemAvailable:   500 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root), 500 << 10);

  Write(root + "/proc/self/cgroup", "12:cpuset:/\n0::/a.slice/b\n");
  const std::string groups = root + "/sys/fs/cgroup";
  EXPECT_EQ(AvailableMemoryBytes(root), 500 << 10);
  Write(groups + "/a.slice/b/memory.max", "max\n");
  EXPECT_EQ(AvailableMemoryBytes(root), 500 << 10);
  Write(groups + "/a.slice/memory.max", "300000\n");  // of the group around it
  EXPECT_EQ(AvailableMemoryBytes(root), 300000);
  Write(groups + "/a.slice/b/memory.max", "200000\n");
  EXPECT_EQ(AvailableMemoryBytes(root), 200000);
  Write(groups + "/memory.max", "100000\n");  // a container's, which is mounted at the top
  EXPECT_EQ(AvailableMemoryBytes(root), 100000);

  Write(root + "/proc/self/cgroup", "5:cpu,memory:/docker/c\n2:memory_other:/d\n");
  Write(groups + "/memory/d/memory.limit_in_bytes", "5\n");
  const std::string none = "9223372036854771712\n";  // as the kernel writes it
  Write(groups + "/memory/memory.limit_in_bytes", none);
  EXPECT_EQ(AvailableMemoryBytes(root), 500 << 10);
  Write(groups + "/memory/docker/c/memory.limit_in_bytes", "400000\n");
  EXPECT_EQ(AvailableMemoryBytes(root), 400000);
}

TEST(AvailableMemory, OfThisMachine) { EXPECT_GT(AvailableMemoryBytes(), 1 << 20); }

}  // namespace
}  // namespace coppice
