#include "policies/methods/xattention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "policies/pattern_test_support.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Marks = std::vector<uint8_t>;

SparsePattern PatternOf(const PrefillScene& scene, const XAttentionConfig& config) {
  XAttentionPolicy policy(config);
  return policy.Pattern(scene.Scene(), *scene.be);
}

// (1) and (2) by plain fp64 sums over antidiagonals.
std::vector<double> NaiveMass(const PrefillScene& scene, int head, const BlockGrid& grid, int64_t s) {
  std::vector<double> mass(static_cast<size_t>(grid.first_dense() * grid.key_blocks()), 0.0);
  for (int64_t a = 0; a < grid.first_dense() * grid.block / s; ++a) {
    std::vector<double> scores;
    for (int64_t b = 0; b * s <= grid.offset() + a * s + s - 1; ++b) {
      double sum = 0;
      for (int64_t r = 0; r < s; ++r) sum += scene.Score(head, a * s + s - 1 - r, b * s + r);
      scores.push_back(sum / static_cast<double>(s));
    }
    PrefillScene::NaiveSoftmax(scores);
    for (size_t b = 0; b < scores.size(); ++b) {
      const int64_t cell = a * s / grid.block * grid.key_blocks() + static_cast<int64_t>(b) * s / grid.block;
      mass[static_cast<size_t>(cell)] += scores[b];
    }
  }
  return mass;
}

TEST(XAttention, BlockMassAgreesWithPlainAntidiagonalSums) {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{512, 512}, {500, 500}, {391, 600}, {300, 1003}}) {
    for (const auto& [stride, block] : {std::pair{1, 128}, {8, 64}, {16, 128}, {16, 48}, {64, 64}}) {
      PrefillScene scene(queries, keys, 2, 1, 9);
      if (stride == 16) scene.Alibi({0.02f, 0.005f});
      scene.PlantDiagonal(1, 100, 30);
      const BlockGrid grid = GridOf(scene.Input(), block);
      for (int head = 0; head < 2; ++head) {
        const AttentionInput one = OneHead(scene.Input(), head);
        const StridedKeys strided(one.keys, stride, *scene.be);
        const std::vector<double> mass = AntidiagonalMass(one, grid, strided, *scene.be);
        const std::vector<double> naive = NaiveMass(scene, head, grid, stride);
        ASSERT_EQ(mass.size(), naive.size());
        for (size_t i = 0; i < mass.size(); ++i)
          ASSERT_NEAR(mass[i], naive[i], 1e-5 * block / stride) << "stride " << stride << ", cell " << i;
      }
    }
  }
}

// More strided rows than one product takes.
TEST(XAttention, MassDoesNotDependOnTheTiles) {
  PrefillScene scene(1500, 1500, 1, 1);
  const BlockGrid grid = GridOf(scene.Input(), 64);
  const AttentionInput one = OneHead(scene.Input(), 0);
  const std::vector<double> mass =
      AntidiagonalMass(one, grid, StridedKeys(one.keys, 2, *scene.be), *scene.be);
  const std::vector<double> naive = NaiveMass(scene, 0, grid, 2);
  ASSERT_EQ(mass.size(), naive.size());
  for (size_t i = 0; i < mass.size(); ++i) ASSERT_NEAR(mass[i], naive[i], 1e-4) << i;
}

// With a stride of one, the estimate is the attention itself.
TEST(XAttention, StrideOneSumsTheTrueWeights) {
  PrefillScene scene(400, 400, 1, 1);
  const BlockGrid grid = GridOf(scene.Input(), 128);
  const AttentionInput one = OneHead(scene.Input(), 0);
  const std::vector<double> mass =
      AntidiagonalMass(one, grid, StridedKeys(one.keys, 1, *scene.be), *scene.be);
  for (int64_t b = 0; b < grid.first_dense(); ++b) {
    std::vector<double> expected(4, 0.0);
    for (int64_t i = b * 128; i < b * 128 + 128; ++i) {
      const std::vector<double> a = scene.Weights(0, i);
      for (size_t j = 0; j < a.size(); ++j) expected[j / 128] += a[j];
    }
    for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(mass[static_cast<size_t>(b * 4) + j], expected[j], 1e-4);
  }
}

TEST(ChooseBlocks, TheFewestThatReachTheThreshold) {
  const std::vector<double> mass = {1, 3, 8, 3, 2, 3};  // 20; the first and the last are 4 of it
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.1), (Marks{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.2), (Marks{1, 0, 0, 0, 0, 1}));  // 4 >= 4
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.25), (Marks{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.6), (Marks{1, 0, 1, 0, 0, 1}));   // 12 >= 12
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.61), (Marks{1, 1, 1, 0, 0, 1}));  // of equals the earlier
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.9), (Marks{1, 1, 1, 1, 0, 1}));   // 18 >= 18
  EXPECT_EQ(ChooseBlocks(mass, 5, 0.91), (Marks{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ChooseBlocks(mass, 4, 0.1), (Marks{1, 0, 0, 0, 1, 1}));  // two blocks hold the queries
  EXPECT_EQ(ChooseBlocks(std::vector<double>(4, 0.0), 3, 0.5), (Marks{1, 1, 1, 1}));
  EXPECT_EQ(ChooseBlocks(std::vector<double>(3, std::nan("")), 2, 0.5), (Marks{1, 1, 1}));
  EXPECT_EQ(ChooseBlocks(std::vector<double>{5}, 0, 0.5), (Marks{1}));
}

TEST(XAttention, FindsPlantedLinesInTheirHeadOnly) {
  PrefillScene scene(1000, 1000, 2, 2);
  scene.PlantColumn(0, 333, 60);
  scene.PlantDiagonal(1, 401, 90);
  const SparsePattern pattern = PatternOf(scene, {.threshold = 0.5, .stride = 4, .block = 64});
  ExpectSound(pattern, scene);
  for (int64_t i = 512; i < 1000 - kDenseRows - 64; ++i) {
    EXPECT_TRUE(Reads(pattern, 0, i, 333));
    // Distance 401 is 6 blocks and 17 rows: the first 17 rows of a block have a key block for themselves,
    // which may miss the threshold.
    if (i % 64 >= 17) {
      EXPECT_TRUE(Reads(pattern, 1, i, i - 401)) << i;
    }
  }
  EXPECT_FALSE(Reads(pattern, 1, 600, 333));  // the diagonal is at keys 175 to 238 there
}

// Antidiagonals of an even stride hold odd distances alone: a diagonal at an even one leaves no trace.
TEST(XAttention, AnEvenStrideSeesOddDistances) {
  const auto mass_at = [](int64_t distance) {
    PrefillScene scene(700, 700, 1, 1);
    scene.PlantDiagonal(0, distance, 90);
    const AttentionInput one = OneHead(scene.Input(), 0);
    const BlockGrid grid = GridOf(one, 64);
    const std::vector<double> mass =
        AntidiagonalMass(one, grid, StridedKeys(one.keys, 2, *scene.be), *scene.be);
    // Block pair (7, 2) holds distances 257 to 383, and of 320 +- 1 most pairs of the row of blocks.
    return mass[static_cast<size_t>(7 * grid.key_blocks() + 2)] / 32;  // strided queries
  };
  EXPECT_GT(mass_at(319), 0.5);
  EXPECT_GT(mass_at(321), 0.5);
  EXPECT_LT(mass_at(320), 0.3);
}

TEST(XAttention, ReadsWhatTheMassSays) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{700, 700}, {701, 701}, {520, 733}}) {
    PrefillScene scene(queries, keys, 4, 2, 21);
    scene.PlantDiagonal(2, 150, 20);
    const SparsePattern pattern = PatternOf(scene, {.threshold = 0.7, .stride = 8, .block = 64});
    ExpectSound(pattern, scene);
    const BlockGrid grid = GridOf(scene.Input(), 64);
    for (int head = 0; head < 4; ++head) {
      const std::vector<double> naive = NaiveMass(scene, head, grid, 8);
      for (int64_t b = 0; b < grid.first_dense(); ++b) {
        const auto visible = static_cast<size_t>(grid.LastDiagonal(b) + 1);
        const Marks marks =
            ChooseBlocks(std::span(naive).subspan(static_cast<size_t>(b * grid.key_blocks()), visible),
                         grid.FirstDiagonal(b), 0.7);
        std::vector<int32_t> expected;
        for (size_t j = 0; j < visible; ++j) {
          if (marks[j] != 0) expected.push_back(static_cast<int32_t>(j));
        }
        EXPECT_EQ(pattern.heads[static_cast<size_t>(head)].key_blocks[static_cast<size_t>(b)], expected) << b;
      }
    }
  }
}

TEST(XAttention, AHigherThresholdReadsMore) {
  PrefillScene scene(900, 900, 4, 2);
  scene.PlantDiagonal(0, 300, 40);
  SparsePattern before;
  for (const double threshold : {0.05, 0.3, 0.6, 0.9, 0.99}) {
    const SparsePattern pattern = PatternOf(scene, {.threshold = threshold});
    if (!before.empty()) {
      EXPECT_TRUE(Covers(pattern, before)) << threshold;
    }
    before = pattern;
  }
  EXPECT_FALSE(Covers(PatternOf(scene, {.threshold = 0.05}), before));
  EXPECT_TRUE(PatternOf(scene, {.threshold = 1}).empty());  // dense
  EXPECT_FALSE(XAttentionPolicy({.threshold = 1}).ChoosesPattern(Phase::kPrefill, 0));
}

TEST(XAttention, AShortPromptStaysDense) {
  XAttentionPolicy policy({});
  ExpectDenseWhereNothingIsChosen(policy, 255);  // no block of 128 rows before the last 128
}

TEST(XAttention, ARowOfNansReadsEverything) {
  PrefillScene scene(700, 700);
  scene.Query(0, 300)[3] = std::numeric_limits<float>::quiet_NaN();
  const SparsePattern pattern = PatternOf(scene, {.threshold = 0.3});
  ExpectSound(pattern, scene);
  EXPECT_EQ(pattern.heads[0].key_blocks[2], (std::vector<int32_t>{0, 1, 2}));
  PrefillScene infinite(700, 700);
  for (int64_t i = 256; i < 384; ++i) infinite.Query(0, i)[3] = -std::numeric_limits<float>::infinity();
  ExpectSound(PatternOf(infinite, {.threshold = 0.3}), infinite);
}

TEST(XAttentionMethod, Settings) {
  const MethodInfo method = XAttentionMethod();
  EXPECT_EQ(SettingsOf(method, "xattention"), "xattention:threshold=0.9,stride=16,block=128,min=4096");
  EXPECT_EQ(SettingsOf(method, "xattention:threshold=0.8,stride=8,block=64,min=0"),
            "xattention:threshold=0.8,stride=8,block=64,min=0");
  EXPECT_EQ(method.traits, kSparsePrefill);
  EXPECT_THAT(RefusalOf(method, "xattention:stride=24"), HasSubstr("stride=24 does not divide block=128"));
  EXPECT_THAT(RefusalOf(method, "xattention:stride=0"), HasSubstr("stride=0"));
  EXPECT_THAT(RefusalOf(method, "xattention:stride=256,block=256"), HasSubstr("stride=256"));
  EXPECT_THAT(RefusalOf(method, "xattention:threshold=0"), HasSubstr("threshold=0"));
  EXPECT_THAT(RefusalOf(method, "xattention:tau=1"), HasSubstr("unknown key 'tau'"));
}

TEST(XAttentionMethod, StandsAside) { ExpectStandsAside(XAttentionMethod(), 4096); }

}  // namespace
}  // namespace coppice
