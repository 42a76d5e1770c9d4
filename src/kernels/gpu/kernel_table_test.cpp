#include "kernels/gpu/kernel_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

using gpu::CubinsFor;

// What kernels/compile.py compiles for.
const std::vector<int> kBuilt = {80, 90, 100, 120};

TEST(GpuKernelTable, CubinsOfSm80RunOnLaterMinorVersions) {
  for (const int device : {80, 86, 87, 89}) EXPECT_EQ(CubinsFor(device, kBuilt), 80) << device;
}

TEST(GpuKernelTable, ArchitectureSpecificCubinsRunOnTheirVersionAlone) {
  for (const int device : {90, 100, 120}) EXPECT_EQ(CubinsFor(device, kBuilt), device);
  for (const int device : {101, 103, 110, 121}) EXPECT_EQ(CubinsFor(device, kBuilt), std::nullopt) << device;
}

TEST(GpuKernelTable, OtherMajorVersionsHaveNone) {
  for (const int device : {0, 70, 75}) EXPECT_EQ(CubinsFor(device, kBuilt), std::nullopt) << device;
  EXPECT_EQ(CubinsFor(90, std::vector<int>{80}), std::nullopt);
  EXPECT_EQ(CubinsFor(80, std::vector<int>{86}), std::nullopt);
  EXPECT_EQ(CubinsFor(90, {}), std::nullopt);
}

TEST(GpuKernelTable, TakesTheNearestMinorVersion) {
  EXPECT_EQ(CubinsFor(89, std::vector<int>{80, 86, 90}), 86);
}

}  // namespace
}  // namespace coppice
