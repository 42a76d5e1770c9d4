#include "eval/report/scale.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coppice::scale_test {
namespace {

TEST(Scale, TicksAreNiceAndCoverTheRange) {
  EXPECT_EQ(NiceScale(0, 1).ticks.size(), 6u);
  EXPECT_DOUBLE_EQ(NiceScale(0, 1).ticks[1], 0.2);
  EXPECT_DOUBLE_EQ(NiceScale(0, 97).high, 100);
  EXPECT_DOUBLE_EQ(NiceScale(0.83, 1.07).low, 0.8);
  for (double low = -3.7; low < 5; low += 0.31) {
    for (double span = 1e-4; span < 1e5; span *= 3.3) {
      for (int most = 3; most < 10; ++most) {
        const Scale scale = NiceScale(low, low + span, most);
        EXPECT_LE(scale.ticks.size(), static_cast<size_t>(most)) << low << " " << span;
        EXPECT_GE(scale.ticks.size(), 2u);
        EXPECT_LE(scale.low, low + 1e-6 * span);
        EXPECT_GE(scale.high, (low + span) - 1e-6 * span);
        EXPECT_DOUBLE_EQ(scale.ticks.front(), scale.low);
        EXPECT_NEAR(scale.ticks.back(), scale.high, 1e-9 * std::abs(scale.high));
      }
    }
  }
}

TEST(Scale, WhatHasNoRangeStillShowsSomething) {
  for (const Scale& scale : {NiceScale(5, 5), NiceScale(0, 0), NiceScale(-2, -2), NiceScale(NAN, 1),
                             NiceScale(0, INFINITY), NiceScale(3, 1)}) {
    EXPECT_LT(scale.low, scale.high);
    EXPECT_TRUE(std::isfinite(scale.low) && std::isfinite(scale.high));
    EXPECT_GE(scale.ticks.size(), 2u);
  }
  EXPECT_LE(NiceScale(5, 5).low, 5);
  EXPECT_GE(NiceScale(5, 5).high, 5);
}

TEST(Scale, PlacesAlongTheAxis) {
  const Scale scale = NiceScale(0, 10);
  EXPECT_DOUBLE_EQ(scale.At(0), 0);
  EXPECT_DOUBLE_EQ(scale.At(2.5), 0.25);
  const Scale log = ScaleOfValues({4096, 1024, 2048, 1024});
  EXPECT_EQ(log.ticks, (std::vector<double>{1024, 2048, 4096}));
  EXPECT_NEAR(log.At(2048), 0.5, 1e-9);
  EXPECT_GT(log.At(1024), 0);
  EXPECT_LT(log.At(4096), 1);
  EXPECT_DOUBLE_EQ(Slots(4).At(0), 0.125);
  EXPECT_DOUBLE_EQ(Slots(4).At(3), 0.875);
  EXPECT_LT(Slots(0).low, Slots(0).high);
}

TEST(Scale, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(PercentText(0.25), "25 %");
  EXPECT_EQ(PercentText(0.055), "5.5 %");
  EXPECT_EQ(PercentText(1), "100 %");
  EXPECT_EQ(PercentText(0), "0 %");
  EXPECT_EQ(RatioText(1.5), "1.5x");
  EXPECT_EQ(TimeText(350), "350 ms");
  EXPECT_EQ(TimeText(2500), "2.5 s");
  EXPECT_EQ(TimeText(0.5), "0.5 ms");
  EXPECT_EQ(SizeText(512), "512 B");
  EXPECT_EQ(SizeText(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(CountText(4096), "4k");
  EXPECT_EQ(CountText(6000), "6,000");
  EXPECT_EQ(CountText(1234567), "1,234,567");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(PlainText(-0.00001), "-0.00001");
  EXPECT_EQ(PlainText(0.0004), "0.0004");
}

TEST(Scale, RangesIgnoreWhatIsNotFinite) {
  const Range range = RangeOf({NAN, 3, INFINITY, -1});
  EXPECT_EQ(range.low, -1);
  EXPECT_EQ(range.high, 3);
  EXPECT_EQ(RangeOf({NAN}).high, 1);
}

}  // namespace
}  // namespace coppice::scale_test
