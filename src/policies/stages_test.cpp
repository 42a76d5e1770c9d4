#include "policies/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policies/random_subset.h"
#include "special_floats.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

TEST(Shares, RoundAsExactArithmeticDoes) {
  EXPECT_EQ(CeilShare(0.5, 8), 4);
  EXPECT_EQ(CeilShare(0.5, 9), 5);
  EXPECT_EQ(CeilShare(0.07, 100), 7);  // 7.000000000000001 in doubles
  EXPECT_EQ(CeilShare(0.1, 30), 3);
  EXPECT_EQ(CeilShare(0.1, 31), 4);
  EXPECT_EQ(CeilShare(1, int64_t{1} << 24), int64_t{1} << 24);
  EXPECT_EQ(CeilShare(1e-6, 1), 1);
  EXPECT_EQ(CeilShare(0, 100), 0);
  EXPECT_EQ(RoundShare(0.9, 5), 5);    // 4.5
  EXPECT_EQ(RoundShare(0.9, 4), 4);    // 3.6
  EXPECT_EQ(RoundShare(0.45, 10), 5);  // 4.5
  EXPECT_EQ(RoundShare(0.44, 10), 4);
  for (int64_t n = 1; n <= 4096; ++n) {
    for (int64_t percent = 1; percent <= 100; ++percent) {
      ASSERT_EQ(CeilShare(static_cast<double>(percent) / 100, n), (percent * n + 99) / 100);
      ASSERT_EQ(RoundShare(static_cast<double>(percent) / 100, n), (2 * percent * n + 100) / 200);
    }
  }
}

Rows Best(const std::vector<float>& scores, int64_t count, int64_t first, int64_t last) {
  const auto be = MakeBackend("reference", {});
  const TokenSet set = BestRows(scores, count, first, last, *be);
  EXPECT_EQ(set.universe(), static_cast<int64_t>(scores.size()));
  return set.ToRows();
}

TEST(BestRows, ProtectedRowsStandInsideTheCount) {
  const std::vector<float> s = {1, 9, 8, 7, 6, 0};
  EXPECT_EQ(Best(s, 2, 0, 0), (Rows{1, 2}));
  EXPECT_EQ(Best(s, 2, 0, 1), (Rows{1, 5}));
  EXPECT_EQ(Best(s, 3, 1, 1), (Rows{0, 1, 5}));
  EXPECT_EQ(Best(s, 1, 2, 2), (Rows{0, 1, 4, 5}));  // protected wins
  EXPECT_EQ(Best(s, 0, 0, 0), Rows{});
  EXPECT_EQ(Best(s, 6, 0, 0), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Best(s, 1, 4, 100), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Best(s, 1, 100, 100), (Rows{0, 1, 2, 3, 4, 5}));
}

TEST(BestRows, TiesAndStrangeScores) {
  EXPECT_EQ(Best({1, 1, 1, 1, 1}, 3, 0, 1), (Rows{0, 1, 4}));
  EXPECT_EQ(Best({kNan, -kInf, kNan, -5, kNan}, 3, 0, 1), (Rows{1, 3, 4}));
  EXPECT_EQ(Best({kNan, kNan, kNan, kNan}, 2, 0, 1), (Rows{0, 3}));
  EXPECT_EQ(Best({kInf, kInf, kInf, 0}, 2, 0, 1), (Rows{0, 3}));  // no score outranks protection
}

TEST(RandomSubset, IsTheSameEverywhere) {
  EXPECT_EQ(RandomSubset(5, 20, 0), TokenSet::Of({0, 3, 5, 15, 17}, 20));
  EXPECT_EQ(RandomSubset(4, 4, 7), TokenSet::All(4));
  EXPECT_EQ(RandomSubset(0, 4, 7), TokenSet::None(4));
  EXPECT_EQ(RandomSubset(0, 0, 7).size(), 0);
  EXPECT_NE(RandomSubset(50, 1000, 1), RandomSubset(50, 1000, 2));
  EXPECT_EQ(SeedOfLayer(7, 13), 0x82276C0EF2F6B78Fu);
  EXPECT_NE(SeedOfLayer(1, 2), SeedOfLayer(2, 1));
  EXPECT_NE(SeedOfLayer(0, 1), SeedOfLayer(0, 2));
}

TEST(RandomSubset, EveryRowIsAsLikely) {
  constexpr int kTimes = 20000;
  std::vector<int> hits(10);
  for (int seed = 0; seed < kTimes; ++seed) {
    const TokenSet set = RandomSubset(3, 10, static_cast<uint64_t>(seed));
    ASSERT_EQ(set.size(), 3);
    for (const int32_t row : set.rows()) ++hits[static_cast<size_t>(row)];
  }
  // 6000 each; six standard deviations are 390.
  for (const int count : hits) EXPECT_NEAR(count, 0.3 * kTimes, 390);
}

TEST(Stages, AsASpecNamesThem) {
  const ModelShape shape = Llama8B();
  const auto layers = [&](const std::string& text) {
    std::vector<int> answer = {3, 5};
    LayersKey(answer, shape, "", "").NoValues("none").Read(ParseSpec("x" + text).front());
    return answer;
  };
  EXPECT_EQ(layers(""), (std::vector<int>{3, 5}));
  EXPECT_EQ(layers(":layers=1/31"), (std::vector<int>{1, 31}));
  EXPECT_EQ(layers(":layers=none"), std::vector<int>{});
  EXPECT_THAT(ErrorOf([&] { layers(":layers=32"); }), HasSubstr("x: layers=32: '32' is not a whole number"));
  EXPECT_THAT(ErrorOf([&] { layers(":layers=5/5"); }), HasSubstr("x: layers=5/5 must ascend"));
  std::vector<double> keep = {0.5};
  FillStages(keep, 3, "x", "keep");
  EXPECT_EQ(keep, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(ErrorOf([&] { FillStages(keep, 2, "x", "keep"); }), "x: keep has 3 values for 2 layers");
  keep = {0.5};
  FillStages(keep, 0, "x", "keep");
  EXPECT_EQ(keep, std::vector<double>{0.5});
  EXPECT_EQ(StageOf({3, 5}, 5), 1);
  EXPECT_EQ(StageOf({3, 5}, 4), -1);
}

}  // namespace
}  // namespace coppice
