#include "policies/methods/flexprefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "policies/pattern_test_support.h"

namespace coppice {
namespace {

using testing::HasSubstr;

SparsePattern PatternOf(const PrefillScene& scene, const FlexPrefillConfig& config) {
  FlexPrefillPolicy policy(config);
  return policy.Pattern(scene.Scene(), *scene.be);
}

std::vector<int32_t> BlocksOf(const SparsePattern& pattern, int head, int64_t b) {
  return pattern.heads[static_cast<size_t>(head)].key_blocks[static_cast<size_t>(b)];
}

TEST(JensenShannonDistance, KnownValues) {
  const std::vector<float> a = {0.5f, 0.5f, 0}, b = {0, 0, 1}, c = {0.25f, 0.75f, 0};
  EXPECT_DOUBLE_EQ(JensenShannonDistance(a, a), 0);
  EXPECT_NEAR(JensenShannonDistance(a, b), std::sqrt(std::log(2.0)), 1e-12);  // nothing in common
  // m = (3/8, 5/8): 1/2 (1/2 ln 4/3 + 1/2 ln 4/5) + 1/2 (1/4 ln 2/3 + 3/4 ln 6/5).
  const double known = 0.5 * (0.5 * std::log(4.0 / 3) + 0.5 * std::log(0.8)) +
                       0.5 * (0.25 * std::log(2.0 / 3) + 0.75 * std::log(1.2));
  EXPECT_NEAR(JensenShannonDistance(a, c), std::sqrt(known), 1e-12);
  EXPECT_DOUBLE_EQ(JensenShannonDistance(a, c), JensenShannonDistance(c, a));
  EXPECT_TRUE(std::isnan(JensenShannonDistance(a, std::vector<float>{std::nanf(""), 0, 1})));
}

// Reads the head's mass as the head comment has it, and compares the whole pattern of a head that is not
// query-aware.
TEST(FlexPrefill, VerticalSlashByCumulativeMass) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1024, 1024}, {1000, 1000}, {900, 1003}}) {
    PrefillScene scene(queries, keys, 2, 1, 5);
    scene.PlantColumn(0, 400, 25);
    scene.PlantDiagonal(1, 300, 40);
    const FlexPrefillConfig config{.gamma = 0.6, .tau = 0, .min_budget = 1};
    const SparsePattern pattern = PatternOf(scene, config);
    ExpectSound(pattern, scene);
    const BlockGrid grid = GridOf(scene.Input(), 128);
    for (int head = 0; head < 2; ++head) {
      const LineMass lines = MassOfLines(OneHead(scene.Input(), head), 128, *scene.be);
      const auto count = [&](std::vector<float> mass) {
        std::sort(mass.rbegin(), mass.rend());
        double sum = 0;
        int64_t needed = 0;
        while (sum < 0.6) sum += mass[static_cast<size_t>(needed++)];
        return needed / 128 + 1;
      };
      std::vector<std::pair<double, int64_t>> columns, diagonals;  // the best first
      for (int64_t j = 0; j < grid.key_blocks(); ++j) {
        double sum = j == 0 ? 1e9 : 0;
        for (int64_t k = j * 128; k < std::min(j * 128 + 128, keys); ++k)
          sum += lines.columns[static_cast<size_t>(k)];
        columns.emplace_back(-sum, j);
      }
      for (int64_t at = grid.LastDiagonal(0); at > grid.LastDiagonal(0) - grid.key_blocks() - 1; --at) {
        double sum = at == grid.LastDiagonal(0) ? 1e9 : 0;
        for (int64_t d = 0; d < keys; ++d) {
          // Pairs of this diagonal in this block diagonal, of a block far down.
          int64_t pairs = 0;
          for (int64_t x = 0; x < 128; ++x) pairs += (keys - queries + 128000 + x - d) / 128 - 1000 == at;
          sum += lines.diagonals[static_cast<size_t>(d)] * static_cast<double>(pairs) / 128;
        }
        diagonals.emplace_back(-sum, at);
      }
      std::stable_sort(columns.begin(), columns.end(), [](auto a, auto b) { return a.first < b.first; });
      std::stable_sort(diagonals.begin(), diagonals.end(), [](auto a, auto b) { return a.first < b.first; });
      columns.resize(std::min(columns.size(), static_cast<size_t>(count(lines.columns))));
      diagonals.resize(std::min(diagonals.size(), static_cast<size_t>(count(lines.diagonals))));
      for (int64_t b = 0; b < grid.first_dense(); ++b) {
        std::vector<int32_t> expected;
        for (int64_t j = 0; j <= grid.LastDiagonal(b); ++j) {
          const bool column =
              std::any_of(columns.begin(), columns.end(), [&](auto c) { return c.second == j; });
          const bool line =
              std::any_of(diagonals.begin(), diagonals.end(), [&](auto d) { return d.second == j - b; });
          if (column || line || j >= grid.FirstDiagonal(b)) expected.push_back(static_cast<int32_t>(j));
        }
        EXPECT_EQ(BlocksOf(pattern, head, b), expected) << queries << ", head " << head << ", block " << b;
      }
    }
  }
}

// A distance that is nearly a whole number of blocks: almost all pairs lie in the further block diagonal.
TEST(FlexPrefill, FindsADiagonalBetweenTwoBlockDiagonals) {
  for (const int64_t distance : {257, 300, 320, 383}) {
    PrefillScene scene(1024, 1024, 1, 1);
    scene.PlantDiagonal(0, distance, 120);
    const SparsePattern pattern = PatternOf(scene, {.gamma = 0.9, .tau = 0, .min_budget = 384});
    ExpectSound(pattern, scene);
    for (int64_t i = distance; i < 1024; ++i)
      EXPECT_TRUE(Reads(pattern, 0, i, i - distance)) << distance << ", " << i;
    EXPECT_FALSE(Reads(pattern, 0, 880, 130)) << distance;
  }
}

TEST(FlexPrefill, ADistanceBelowTauMakesAHeadQueryAware) {
  // Head 0: the last rows look at nothing in particular, and their estimate says so; the rows of block 6 look
  // at block 3. Head 1: a single loud column, which the mean key of its block hides from the estimate.
  PrefillScene scene(1024, 1024, 2, 2);
  for (int64_t i = 0; i < 1024; ++i) std::fill_n(scene.Query(0, i).begin(), PrefillScene::kDim, 0.0f);
  for (int64_t j = 0; j < 1024; ++j) scene.Key(0, j)[0] = j / 128 == 3 ? 8.0f : 0.0f;
  for (int64_t i = 768; i < 896; ++i) scene.Query(0, i)[0] = 8;
  scene.PlantColumn(1, 600, 60);

  const AttentionInput in = scene.Input();
  const auto distance = [&](int head) {
    std::vector<float> estimate(8), truth(8, 0.0f);
    std::vector<double> scores(8);
    for (int64_t j = 0; j < 1024; ++j) {
      for (int64_t i = 896; i < 1024; ++i) {
        double product = 0;
        for (size_t c = 0; c < PrefillScene::kDim; ++c)
          product += double{scene.Query(head, i)[c]} * scene.Key(head, j)[c];
        scores[static_cast<size_t>(j / 128)] += PrefillScene::kScale * product / (128.0 * 128);
      }
    }
    PrefillScene::NaiveSoftmax(scores);
    std::copy(scores.begin(), scores.end(), estimate.begin());
    const LineMass lines = MassOfLines(OneHead(in, head), 128, *scene.be);
    for (size_t j = 0; j < 1024; ++j) truth[j / 128] += lines.columns[j];
    return JensenShannonDistance(estimate, truth);
  };
  const double near = distance(0), far = distance(1);
  ASSERT_LT(near, 0.1);
  ASSERT_GT(far, 0.3);

  const auto blocks = [&](double tau, int head, double gamma = 0.3) {
    const SparsePattern pattern = PatternOf(scene, {.gamma = gamma, .tau = tau, .min_budget = 128});
    ExpectSound(pattern, scene);
    return BlocksOf(pattern, head, 6);
  };
  const std::vector<int32_t> by_map = {0, 3, 6};
  EXPECT_EQ(blocks(0.1, 0), by_map);
  EXPECT_EQ(blocks(near * 1.001, 0), by_map);
  // 0.3 of the mass of the last rows is three blocks of equal columns, and of equal diagonals.
  EXPECT_EQ(blocks(near * 0.999, 0), (std::vector<int32_t>{0, 1, 2, 4, 5, 6}));
  // One column holds most of the mass of head 1, and 128 diagonals one query's part of it each: one block of
  // either, and these are the forced ones. The map, did it count, would have more to say.
  const std::vector<int32_t> by_lines = {0, 6};
  EXPECT_EQ(blocks(far * 0.999, 1, 0.8), by_lines);
  EXPECT_GT(blocks(far * 1.001, 1, 0.8).size(), by_lines.size());
}

TEST(FlexPrefill, AQueryAwareHeadReadsTheMapUpToGamma) {
  PrefillScene scene(1100, 1100, 1, 1, 11);
  const BlockGrid grid = GridOf(scene.Input(), 128);
  const AttentionInput one = OneHead(scene.Input(), 0);
  const Tensor queries = MeanRows(one.queries, 128, *scene.be);
  const Tensor map = PooledMap(one, queries.view(), MeanKeysOf(one, 128, *scene.be), 128, *scene.be);
  std::vector<std::pair<double, int64_t>> cells;
  for (int64_t cell = 0; cell < 81; ++cell)
    cells.emplace_back(-map.view().Row<float>(cell / 9)[static_cast<size_t>(cell % 9)], cell);
  std::sort(cells.begin(), cells.end());
  for (const double gamma : {0.05, 0.3, 0.5, 0.77}) {
    const SparsePattern pattern = PatternOf(scene, {.gamma = gamma, .tau = 1, .min_budget = 1});
    ExpectSound(pattern, scene);
    std::vector<uint8_t> expected(81, 0);
    double sum = 0;
    for (const auto& [mass, cell] : cells) {
      sum -= mass;
      if (sum > gamma * 9) break;
      expected[static_cast<size_t>(cell)] = 1;
    }
    for (int64_t b = 0; b < grid.first_dense(); ++b) {
      std::vector<int32_t> blocks;
      for (int64_t j = 0; j <= b; ++j) {
        if (j == 0 || j == b || expected[static_cast<size_t>(b * 9 + j)] != 0)
          blocks.push_back(static_cast<int32_t>(j));
      }
      EXPECT_EQ(BlocksOf(pattern, 0, b), blocks) << gamma << ", block " << b;
    }
  }
}

TEST(FlexPrefill, MoreGammaReadsMore) {
  for (const double tau : {0.0, 1.0}) {
    PrefillScene scene(1500, 1500, 4, 2);
    scene.PlantColumn(0, 700, 20);
    scene.PlantDiagonal(2, 500, 30);
    SparsePattern before;
    for (const double gamma : {0.05, 0.3, 0.6, 0.9, 0.99, 0.999999}) {
      const SparsePattern pattern = PatternOf(scene, {.gamma = gamma, .tau = tau, .min_budget = 1});
      if (!before.empty()) {
        EXPECT_TRUE(Covers(pattern, before)) << gamma << ", tau " << tau;
      }
      before = pattern;
    }
    const SparsePattern least = PatternOf(scene, {.gamma = 0.05, .tau = tau, .min_budget = 1});
    EXPECT_FALSE(Covers(least, before));
    EXPECT_TRUE(PatternOf(scene, {.gamma = 1, .tau = tau, .min_budget = 1}).empty());  // dense
    // The least budget is a floor.
    EXPECT_TRUE(Covers(PatternOf(scene, {.gamma = 0.05, .tau = tau, .min_budget = 700}), least));
  }
  EXPECT_FALSE(FlexPrefillPolicy({.gamma = 1}).ChoosesPattern(Phase::kPrefill, 0));
}

TEST(FlexPrefill, AShortPromptStaysDense) {
  FlexPrefillPolicy by_blocks({.min_budget = 100});
  ExpectDenseWhereNothingIsChosen(by_blocks, 256);
  FlexPrefillPolicy by_budget({.min_budget = 512});
  ExpectDenseWhereNothingIsChosen(by_budget, 512);
}

TEST(FlexPrefill, NansBreakNothing) {
  for (const double tau : {0.0, 1.0}) {
    for (const int64_t row : {5, 300, 899}) {
      PrefillScene scene(900, 900);
      scene.Query(0, row)[3] = std::numeric_limits<float>::quiet_NaN();
      ExpectSound(PatternOf(scene, {.tau = tau, .min_budget = 1}), scene);
    }
  }
}

TEST(FlexPrefillMethod, Settings) {
  const MethodInfo method = FlexPrefillMethod();
  EXPECT_EQ(SettingsOf(method, "flexprefill"),
            "flexprefill:gamma=0.9,tau=0.1,min_budget=512,block=128,min=8192");
  EXPECT_EQ(SettingsOf(method, "flexprefill:gamma=0.95,min_budget=1024,block=64,min=0"),
            "flexprefill:gamma=0.95,tau=0.1,min_budget=1024,block=64,min=0");
  EXPECT_EQ(method.traits, kSparsePrefill);
  EXPECT_THAT(RefusalOf(method, "flexprefill:gamma=0"), HasSubstr("gamma=0"));
  EXPECT_THAT(RefusalOf(method, "flexprefill:gamma=1.1"), HasSubstr("gamma=1.1"));
  EXPECT_THAT(RefusalOf(method, "flexprefill:tau=-1"), HasSubstr("tau=-1"));
  EXPECT_THAT(RefusalOf(method, "flexprefill:block=8"), HasSubstr("block=8"));
  EXPECT_THAT(RefusalOf(method, "flexprefill:x=1"), HasSubstr("unknown key 'x'"));
}

TEST(FlexPrefillMethod, StandsAside) { ExpectStandsAside(FlexPrefillMethod(), 8192); }

}  // namespace
}  // namespace coppice
