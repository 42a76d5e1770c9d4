#include "eval/intervals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace coppice::intervals_test {
namespace {

TEST(Intervals, Wilson) {
  // 81 of 263 is Newcombe's (1998) example: 0.2553 to 0.3662.
  const Interval interval = WilsonInterval(81.0 / 263, 263);
  EXPECT_NEAR(interval.low, 0.2553, 5e-5);
  EXPECT_NEAR(interval.high, 0.3662, 5e-5);
  EXPECT_NEAR(WilsonInterval(1, 20).low, 0.8389, 5e-5);
  EXPECT_DOUBLE_EQ(WilsonInterval(1, 20).high, 1);
  EXPECT_DOUBLE_EQ(WilsonInterval(0.5, 0).low, 0);
}

TEST(Intervals, PairedIsAgrestiAndMins) {
  // 25 wins, 14 losses of 100 pairs: with half a pair added to each cell (14.5 - 25.5) / 102, and its
  // variance.
  std::vector<double> differences(100, 0.0);
  for (size_t i = 0; i < 25; ++i) differences[i] = -1;
  for (size_t i = 25; i < 39; ++i) differences[i] = 1;
  const Interval interval = PairedInterval(differences);
  EXPECT_NEAR((interval.low + interval.high) / 2, -11.0 / 102, 1e-12);
  EXPECT_NEAR(interval.high - interval.low, 2 * 1.959964 * std::sqrt((40.0 / 102 - 121.0 / 10404) / 102),
              1e-12);
  const Interval same = PairedInterval(std::vector<double>(50, 0.0));
  EXPECT_NEAR(same.high, 1.959964 / 52, 1e-12);
  EXPECT_NEAR(same.low, -same.high, 1e-12);
}

}  // namespace
}  // namespace coppice::intervals_test
