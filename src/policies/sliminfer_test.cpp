#include "policies/sliminfer.h"

#include <gtest/gtest.h>

#include <limits>

#include "policy_scene.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Needs::Units kUnits{.queries = 4, .unit = 2};

// Blocks of four rows, two units each. Decides after layer 9.
TokenSet Answer(int64_t rows, int64_t keep, const std::vector<float>& units) {
  Scene scene(rows, 9);
  EXPECT_EQ(static_cast<int64_t>(units.size()), (rows + 1) / 2);
  scene.Units(kUnits, units);
  SlimInferPolicy slim({.layers = {10}, .keep = {keep}, .block = 4, .unit = 2, .window = 4});
  TokenSet set = slim.AfterAttention(scene.seen, *scene.be);
  EXPECT_EQ(set.universe(), rows);
  return set;
}

Rows Blocks(const TokenSet& set) {  // and that each is whole
  Rows blocks;
  for (const int32_t row : set.ToRows()) {
    if (row % 4 == 0) blocks.push_back(row / 4);
    EXPECT_TRUE(!blocks.empty() && blocks.back() == row / 4) << "row " << row;
  }
  int64_t rows = 0;
  for (const int32_t b : blocks) rows += std::min<int64_t>(4, set.universe() - 4 * b);
  EXPECT_EQ(rows, set.size());
  return blocks;
}

TEST(SlimInferPolicy, KeepsTheBestBlocksByTheirBestUnit) {
  //                                block 0   1      2      3      4      5 (tail)
  const std::vector<float> units = {0, 0, 5, -9, 1, 2, -3, 6, 4, 4, -7, -7};
  EXPECT_EQ(Blocks(Answer(24, 8, units)), (Rows{0, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, units)), (Rows{0, 3, 5}));
  EXPECT_EQ(Blocks(Answer(24, 16, units)), (Rows{0, 1, 3, 5}));
  EXPECT_EQ(Blocks(Answer(24, 19, units)), (Rows{0, 1, 3, 5}));  // T-SL4: whole blocks within the budget
  EXPECT_EQ(Blocks(Answer(24, 20, units)), (Rows{0, 1, 3, 4, 5}));
  EXPECT_TRUE(Answer(24, 24, units).IsAll());  // T-SL6
  EXPECT_TRUE(Answer(24, 1000, units).IsAll());
}

TEST(SlimInferPolicy, BlockZeroAndTheTailStandAboveTheBudget) {
  const std::vector<float> units(12, 1.0f);
  for (const int64_t keep : {1, 3, 4, 5, 7, 8})
    EXPECT_EQ(Blocks(Answer(24, keep, units)), (Rows{0, 5})) << keep;
}

TEST(SlimInferPolicy, PartialTail) {
  // 22 rows: the tail has two rows and one unit; 21 rows: one row, a unit of one.
  EXPECT_EQ(Blocks(Answer(22, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5})), (Rows{0, 3, 5}));
  EXPECT_EQ(Answer(22, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5}).size(), 10);
  EXPECT_EQ(Answer(21, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5}).size(), 9);
}

TEST(SlimInferPolicy, Lengths) {
  for (const int64_t rows : {1, 3, 4, 5, 8, 9, 12, 13}) {
    const std::vector<float> units(static_cast<size_t>((rows + 1) / 2), 0.5f);
    const TokenSet set = Answer(rows, 8, units);
    EXPECT_TRUE(set.Contains(0)) << rows;
    EXPECT_TRUE(set.Contains(rows - 1)) << rows;
    EXPECT_EQ(set.IsAll(), rows <= 8) << rows;  // budget, budget + 1
    EXPECT_LE(set.size(), 8) << rows;
  }
}

TEST(SlimInferPolicy, TiesGoToTheEarlierBlock) {
  EXPECT_EQ(Blocks(Answer(24, 16, std::vector<float>(12, 1.0f))), (Rows{0, 1, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, 7, 1, 1, 7, 7, 7, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, -0.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0})), (Rows{0, 1, 5}));
}

// T-SL2 whatever the scores are.
TEST(SlimInferPolicy, StrangeScoresKeepTheEnds) {
  for (const float x : {-kInf, kInf, kNan}) {
    EXPECT_EQ(Blocks(Answer(24, 8, std::vector<float>(12, x))), (Rows{0, 5})) << x;
    const Rows three = Blocks(Answer(24, 12, std::vector<float>(12, x)));
    ASSERT_EQ(three.size(), 3u) << x;
    EXPECT_EQ(three.front(), 0) << x;
    EXPECT_EQ(three.back(), 5) << x;
  }
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, kNan, kNan, -kInf, 3, 1, 1, kNan, kNan, 0, 0})), (Rows{0, 2, 5}));
}

// A unit without a number does not hide the block's other unit, whichever of the two it is.
TEST(SlimInferPolicy, ANanIsTheWorstUnitOfItsBlock) {
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, 5, kNan, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, kNan, 5, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
}

TEST(SlimInferPolicy, DecidesAfterTheLayerBeforeTheStageAndInPrefillAlone) {
  SlimInferPolicy slim({.layers = {10, 20}, .keep = {16, 8}, .block = 4, .unit = 2, .window = 4});
  for (int layer = 0; layer < 32; ++layer) {
    const bool decides = layer == 9 || layer == 19;
    EXPECT_EQ(slim.NeedsAt(layer).empty(), !decides) << layer;
    Scene scene(24, layer);
    scene.Units(kUnits, std::vector<float>(12, 1.0f));
    const TokenSet set = slim.AfterAttention(scene.seen, *scene.be);
    EXPECT_EQ(set.size(), layer == 9 ? 16 : layer == 19 ? 8 : 24) << layer;
    EXPECT_TRUE(slim.RunFfn(scene.seen, *scene.be).IsAll());
    EXPECT_TRUE(slim.BeforeLayer(scene.seen, *scene.be).IsAll());
    scene.seen.phase = Phase::kDecode;
    EXPECT_TRUE(slim.AfterAttention(scene.seen, *scene.be).IsAll());
  }
  EXPECT_EQ(slim.NeedsAt(9).unit_scores, std::vector<Needs::Units>{kUnits});
  EXPECT_TRUE(slim.NeedsAt(9).mass_queries.empty());
}

}  // namespace
}  // namespace coppice
