#include "base/peak_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace coppice {
namespace {

constexpr int64_t kBlock = int64_t{64} << 20;

TEST(PeakMemory, GrowsWithWhatIsHeldAndFallsWhenReset) {
  const int64_t before = PeakMemoryBytes();
  ASSERT_GT(before, 0);
  {
    const std::vector<char> held(kBlock, 1);
    EXPECT_EQ(held.back(), 1);
  }
  const int64_t with = PeakMemoryBytes();
  EXPECT_GE(with, kBlock);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers hold what is freed";
#endif
  if (!ResetPeakMemory()) GTEST_SKIP() << "the system does not let a process reset its peak";
  EXPECT_LT(PeakMemoryBytes(), with - kBlock / 2);
}

}  // namespace
}  // namespace coppice
