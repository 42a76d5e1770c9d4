#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace coppice {
namespace {

using Scaling = RopeConfig::Scaling;

TEST(Rope, PlainFrequencies) {
  RopeConfig c;
  c.dims = 8;
  c.base = 10000;
  const RopeFrequencies r = MakeRopeFrequencies(c, {});
  ASSERT_EQ(r.inverse.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(r.inverse[i], std::pow(10.0, -static_cast<double>(i)), 1e-15);
  EXPECT_EQ(r.magnitude, 1);
}

TEST(Rope, LinearScalingAndFactors) {
  RopeConfig c;
  c.dims = 4;
  c.base = 100;
  c.scaling = Scaling::kLinear;
  c.factor = 4;
  const std::vector<float> factors = {1, 8};
  EXPECT_DOUBLE_EQ(MakeRopeFrequencies(c, {}).inverse[1], 0.1 / 4);
  EXPECT_DOUBLE_EQ(MakeRopeFrequencies(c, factors).inverse[1], 0.1 / 8 / 4);
  const std::vector<float> wrong = {1, 1, 1};
  EXPECT_THROW(MakeRopeFrequencies(c, wrong), CheckFailure);
}

// Llama 3.1's own settings: factor 8, 8192 positions, low 1, high 4. Dimensions that turn more than 4 times
// over the context stay, those that turn less than once are stretched by 8, and those between follow the
// published formula.
TEST(Rope, Llama3Scaling) {
  RopeConfig c;
  c.dims = 128;
  c.base = 500000;
  RopeConfig scaled = c;
  scaled.scaling = Scaling::kLlama3;
  scaled.factor = 8;
  scaled.original_context = 8192;
  const std::vector<double> plain = MakeRopeFrequencies(c, {}).inverse;
  const RopeFrequencies got = MakeRopeFrequencies(scaled, {});
  int kept = 0, stretched = 0, between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192 / 4.0) {
      EXPECT_DOUBLE_EQ(got.inverse[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(got.inverse[i], plain[i] / 8);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(got.inverse[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-15);
      ++between;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(between, 6);
  EXPECT_EQ(stretched, 29);
  EXPECT_EQ(got.magnitude, 1);
}

TEST(Rope, YarnScaling) {
  RopeConfig c;
  c.dims = 128;
  c.base = 10000;
  c.scaling = Scaling::kYarn;
  c.factor = 4;
  c.original_context = 4096;
  const RopeFrequencies got = MakeRopeFrequencies(c, {});
  EXPECT_DOUBLE_EQ(got.magnitude, 0.1 * std::log(4.0) + 1);
  // By hand: d(turns) = 128 ln(4096 / (2 pi turns)) / (2 ln 10000): d(32) = 20.94, d(1) = 45.03.
  for (size_t i = 0; i < 64; ++i) {
    const double plain = std::pow(10000.0, -2.0 * static_cast<double>(i) / 128);
    const double ramp = std::clamp((static_cast<double>(i) - 20) / (46 - 20), 0.0, 1.0);
    EXPECT_NEAR(got.inverse[i], plain * (1 - ramp + ramp / 4), 1e-15) << i;
  }
  c.attention_factor = 1.5;
  EXPECT_EQ(MakeRopeFrequencies(c, {}).magnitude, 1.5);
  c.attention_factor = 0;
  c.factor = 1;
  EXPECT_EQ(MakeRopeFrequencies(c, {}).magnitude, 1);
}

TEST(Rope, TablesAreExactFarOut) {
  RopeConfig c;
  c.dims = 4;
  c.base = 1e6;
  const RopeFrequencies frequencies = MakeRopeFrequencies(c, {});
  RopeTables tables(frequencies, true);
  tables.Reach(100);
  tables.Reach(100001);  // grows, and keeps what it holds
  const RopeTable t = tables.view();
  EXPECT_TRUE(t.interleaved);
  ASSERT_EQ(t.cos.rows, 100001);
  ASSERT_EQ(t.cos.cols, 2);
  for (const int64_t p : {0, 1, 65536, 99999, 100000}) {
    EXPECT_NEAR(t.cos.Row<float>(p)[0], std::cos(static_cast<double>(p)), 6e-8) << p;
    EXPECT_NEAR(t.sin.Row<float>(p)[0], std::sin(static_cast<double>(p)), 6e-8) << p;
    EXPECT_NEAR(t.sin.Row<float>(p)[1], std::sin(static_cast<double>(p) * 1e-3), 6e-8) << p;
  }
}

TEST(Rope, MagnitudeScalesBothTables) {
  RopeTables tables({{1.0}, 1.25}, false);
  tables.Reach(2);
  EXPECT_FLOAT_EQ(tables.view().cos.Row<float>(0)[0], 1.25f);
  EXPECT_FLOAT_EQ(tables.view().sin.Row<float>(1)[0], 1.25f * std::sin(1.0f));
}

}  // namespace
}  // namespace coppice
