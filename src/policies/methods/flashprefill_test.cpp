#include "policies/methods/flashprefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policies/pattern_test_support.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Marks = std::vector<uint8_t>;

SparsePattern PatternOf(const PrefillScene& scene, const FlashPrefillConfig& config) {
  FlashPrefillPolicy policy(config);
  return policy.Pattern(scene.Scene(), *scene.be);
}

// (1) by plain fp64 loops, one query block: every key of a block is scored, and the mean taken afterwards,
// which is the same for scores that are linear in the key.
std::vector<double> NaiveScores(const PrefillScene& scene, int head, const BlockGrid& grid, int64_t b) {
  std::vector<double> sums(static_cast<size_t>(grid.key_blocks()), 0.0);
  for (int64_t i = b * grid.block; i < (b + 1) * grid.block; ++i) {
    for (int64_t j = 0; j * grid.block + grid.block - 1 <= grid.offset() + i; ++j) {
      double mean = 0;
      for (int64_t k = j * grid.block; k < (j + 1) * grid.block; ++k) mean += scene.Score(head, i, k);
      sums[static_cast<size_t>(j)] += std::exp(mean / grid.block);
    }
  }
  return sums;
}

// (2) and (3) as the public code has them: normalised scores, masks, and their union below the diagonal.
std::vector<int32_t> NaiveBlocks(const PrefillScene& scene, int head, const BlockGrid& grid, int64_t b,
                                 const FlashPrefillConfig& c) {
  std::vector<double> share = NaiveScores(scene, head, grid, b);
  const double total = std::accumulate(share.begin(), share.end(), 0.0) + 1e-9;
  for (double& s : share) s /= total;
  const double best = *std::max_element(share.begin(), share.end());
  const bool whole = b >= grid.query_blocks() - c.last ||
                     (b + 1) * grid.block > grid.queries - kDenseRows;  // has one of the dense rows
  std::vector<int32_t> blocks;
  for (int64_t j = 0; j <= grid.LastDiagonal(b); ++j) {
    const bool near = share[static_cast<size_t>(j)] >= best * c.alpha;
    if (near || whole || j < c.sink || grid.FirstDiagonal(b) - j < c.window)
      blocks.push_back(static_cast<int32_t>(j));
  }
  return blocks;
}

const std::vector<std::pair<int64_t, int64_t>> kLengths = {
    {512, 512}, {700, 700}, {391, 600}, {300, 1003}, {640, 705}};

TEST(FlashPrefill, ScoresAgreeWithPlainSums) {
  for (const auto& [queries, keys] : kLengths) {
    for (const int block : {16, 48, 128}) {
      PrefillScene scene(queries, keys, 2, 1, 9);
      if (block == 48) scene.Alibi({0.02f, 0.005f});
      scene.PlantColumn(0, 37, 300);
      scene.PlantDiagonal(1, 100, 60);
      const BlockGrid grid = GridOf(scene.Input(), block);
      for (int head = 0; head < 2; ++head) {
        const AttentionInput one = OneHead(scene.Input(), head);
        const std::vector<double> scores =
            ProbeScores(one, grid, ProbeKeys(one, block, *scene.be), grid.first_dense(), *scene.be);
        ASSERT_EQ(static_cast<int64_t>(scores.size()), grid.first_dense() * grid.key_blocks());
        for (int64_t b = 0; b < grid.first_dense(); ++b) {
          const std::vector<double> naive = NaiveScores(scene, head, grid, b);
          const double* mine = scores.data() + b * grid.key_blocks();
          const double total = std::accumulate(mine, mine + grid.key_blocks(), 0.0);
          const double expected = std::accumulate(naive.begin(), naive.end(), 0.0);
          for (size_t j = 0; j < naive.size(); ++j)
            ASSERT_NEAR(mine[j] / total, naive[j] / expected, 1e-5) << "query block " << b << ", key " << j;
        }
      }
    }
  }
}

TEST(FlashPrefill, ReadsWhatTheScoresSay) {
  for (const auto& [queries, keys] : kLengths) {
    for (const FlashPrefillConfig& c : {FlashPrefillConfig{.alpha = 0.6, .block = 32},
                                        {.alpha = 0.9, .block = 16, .sink = 1, .window = 1},
                                        {.alpha = 0.3, .block = 16, .sink = 3, .window = 2, .last = 12},
                                        {.alpha = 1, .block = 64}}) {
      PrefillScene scene(queries, keys, 4, 2, 21);
      scene.PlantColumn(0, 150, 300);
      scene.PlantDiagonal(2, 150, 60);
      const SparsePattern pattern = PatternOf(scene, c);
      ExpectSound(pattern, scene);
      const BlockGrid grid = GridOf(scene.Input(), c.block);
      for (int head = 0; head < 4; ++head) {
        for (int64_t b = 0; b < grid.first_dense(); ++b)
          ASSERT_EQ(pattern.heads[static_cast<size_t>(head)].key_blocks[static_cast<size_t>(b)],
                    NaiveBlocks(scene, head, grid, b, c))
              << "head " << head << ", query block " << b;
      }
    }
  }
}

TEST(FlashPrefill, FindsPlantedColumnsInTheirHeadOnly) {
  PrefillScene scene(1000, 1000, 2, 2);
  scene.PlantColumn(0, 333, 900);
  scene.PlantColumn(1, 170, 900);
  const SparsePattern pattern = PatternOf(scene, {.alpha = 0.2, .block = 16, .sink = 1, .window = 1});
  ExpectSound(pattern, scene);
  for (int64_t i = 512; i < 1000 - kDenseRows - 16; ++i) {
    EXPECT_TRUE(Reads(pattern, 0, i, 333)) << i;
    EXPECT_TRUE(Reads(pattern, 1, i, 170)) << i;
    EXPECT_FALSE(Reads(pattern, 0, i, 170)) << i;
    EXPECT_FALSE(Reads(pattern, 1, i, 333)) << i;
  }
}

TEST(FlashPrefill, AHigherShareReadsLess) {
  PrefillScene scene(900, 900, 4, 2);
  scene.PlantDiagonal(0, 300, 200);
  SparsePattern before;
  for (const double alpha : {0.99, 0.8, 0.5, 0.2, 0.05}) {
    const SparsePattern pattern = PatternOf(scene, {.alpha = alpha, .block = 32});
    if (!before.empty()) {
      EXPECT_TRUE(Covers(pattern, before)) << alpha;
    }
    before = pattern;
  }
  EXPECT_FALSE(Covers(PatternOf(scene, {.alpha = 0.99, .block = 32}), before));
  EXPECT_TRUE(PatternOf(scene, {.alpha = 0}).empty());  // dense
  EXPECT_FALSE(FlashPrefillPolicy({.alpha = 0}).ChoosesPattern(Phase::kPrefill, 0));
}

TEST(NearTheBest, CountsFromAShareOfTheBestOn) {
  const std::vector<double> scores = {1, 8, 4, 2, 0};
  EXPECT_EQ(NearTheBest(scores, 0.5), (Marks{0, 1, 1, 0, 0}));  // 4 >= 4
  EXPECT_EQ(NearTheBest(scores, 0.51), (Marks{0, 1, 0, 0, 0}));
  EXPECT_EQ(NearTheBest(scores, 1), (Marks{0, 1, 0, 0, 0}));
  EXPECT_EQ(NearTheBest(scores, 0), (Marks{1, 1, 1, 1, 1}));
  EXPECT_EQ(NearTheBest(std::vector<double>(3, 0.0), 0.5), (Marks{1, 1, 1}));
  EXPECT_EQ(NearTheBest(std::vector<double>{1, std::nan(""), 3}, 0.5), (Marks{1, 1, 1}));
}

TEST(FlashPrefill, AShortPromptStaysDense) {
  FlashPrefillPolicy policy({});
  ExpectDenseWhereNothingIsChosen(policy, 255);  // no block of 128 rows before the last 128
}

TEST(FlashPrefill, ARowOfNansReadsEverything) {
  PrefillScene scene(700, 700);
  scene.Query(0, 300)[3] = std::numeric_limits<float>::quiet_NaN();
  const FlashPrefillConfig c{.alpha = 0.99, .block = 32, .sink = 1, .window = 1};
  const SparsePattern pattern = PatternOf(scene, c);
  ExpectSound(pattern, scene);
  EXPECT_EQ(pattern.heads[0].key_blocks[9], (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  PrefillScene infinite(700, 700);
  for (int64_t i = 256; i < 384; ++i) infinite.Query(0, i)[3] = -std::numeric_limits<float>::infinity();
  ExpectSound(PatternOf(infinite, c), infinite);
}

TEST(FlashPrefillMethod, Settings) {
  const MethodInfo method = FlashPrefillMethod();
  EXPECT_EQ(SettingsOf(method, "flashprefill"),
            "flashprefill:alpha=0.18,block=128,sink=2,window=4,last=2,min=4096");
  EXPECT_EQ(SettingsOf(method, "flashprefill:alpha=0.05,block=64,sink=1,window=1,last=0,min=0"),
            "flashprefill:alpha=0.05,block=64,sink=1,window=1,last=0,min=0");
  EXPECT_EQ(method.traits, kSparsePrefill);
  EXPECT_THAT(RefusalOf(method, "flashprefill:alpha=1.5"), HasSubstr("alpha=1.5"));
  EXPECT_THAT(RefusalOf(method, "flashprefill:block=8"), HasSubstr("block=8"));
  EXPECT_THAT(RefusalOf(method, "flashprefill:window=0"), HasSubstr("window=0"));
  EXPECT_THAT(RefusalOf(method, "flashprefill:threshold=1"), HasSubstr("unknown key 'threshold'"));
}

TEST(FlashPrefillMethod, StandsAside) { ExpectStandsAside(FlashPrefillMethod(), 4096); }

}  // namespace
}  // namespace coppice
