#include "policies/methods/minference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "policies/pattern_test_support.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using testing::HasSubstr;

SparsePattern PatternOf(const PrefillScene& scene, const MInferenceConfig& config) {
  MInferencePolicy policy(config);
  return policy.Pattern(scene.Scene(), *scene.be);
}

std::vector<double> ColumnMass(const PrefillScene& scene, int head) {
  std::vector<double> mass(static_cast<size_t>(scene.keys()), 0.0);
  for (int64_t i = scene.queries() - 64; i < scene.queries(); ++i) {
    const std::vector<double> a = scene.Weights(head, i);
    for (size_t j = 0; j < a.size(); ++j) mass[j] += a[j];
  }
  return mass;
}

std::vector<double> DiagonalMass(const PrefillScene& scene, int head) {
  std::vector<double> mass(static_cast<size_t>(scene.keys()), 0.0);
  for (int64_t i = scene.queries() - 64; i < scene.queries(); ++i) {
    const std::vector<double> a = scene.Weights(head, i);
    const int64_t own = scene.keys() - scene.queries() + i;
    for (int64_t j = 0; j <= own; ++j) mass[static_cast<size_t>(own - j)] += a[static_cast<size_t>(j)];
  }
  return mass;
}

// The first `forced`, and the best of the others.
std::vector<int32_t> Best(const std::vector<double>& mass, int64_t forced, int64_t count) {
  std::vector<int32_t> rows(mass.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin() + forced, rows.end(),
                   [&](int32_t a, int32_t b) { return mass[a] > mass[b]; });
  rows.resize(static_cast<size_t>(count));
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(MInference, ReadsTheBestColumnsAndTheBlocksOfTheBestDiagonals) {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{640, 640}, {611, 611}, {500, 613}, {448, 640}}) {
    PrefillScene scene(queries, keys, 4, 2, 7);
    const SparsePattern pattern = PatternOf(scene, {.vertical = 40, .slash = 103});
    ExpectSound(pattern, scene);
    EXPECT_EQ(pattern.query_block, 64);
    for (int head = 0; head < 4; ++head) {
      const SparsePattern::Head& of = pattern.heads[static_cast<size_t>(head)];
      EXPECT_EQ(of.columns, Best(ColumnMass(scene, head), 30, 40));
      const std::vector<int32_t> diagonals = Best(DiagonalMass(scene, head), 100, 103);
      // Every pair of a chosen diagonal is read, and every block of a row that is not dense has one.
      std::set<std::pair<int64_t, int64_t>> crossed;
      for (int64_t i = 0; i < queries; ++i) {
        for (const int32_t d : diagonals) {
          const int64_t j = keys - queries + i - d;
          if (j >= 0) crossed.insert({i / 64, j / 64});
        }
      }
      for (int64_t b = 0; b < (queries - kDenseRows) / 64; ++b) {
        std::set<std::pair<int64_t, int64_t>> read;
        for (const int32_t j : of.key_blocks[static_cast<size_t>(b)]) read.insert({b, j});
        std::set<std::pair<int64_t, int64_t>> expected;
        for (const auto& cell : crossed) {
          if (cell.first == b) expected.insert(cell);
        }
        EXPECT_EQ(read, expected) << head << ", block " << b;
      }
    }
  }
}

TEST(MInference, FindsPlantedLinesInTheirHeadOnly) {
  PrefillScene scene(900, 900, 2, 2);
  scene.PlantColumn(0, 333, 30);
  scene.PlantDiagonal(1, 470, 60);
  const SparsePattern pattern = PatternOf(scene, {.vertical = 31, .slash = 101});
  ExpectSound(pattern, scene);
  for (int64_t i = 500; i < 900 - kDenseRows - 64; ++i) {
    EXPECT_TRUE(Reads(pattern, 0, i, 333));
    EXPECT_TRUE(Reads(pattern, 1, i, i - 470)) << i;
  }
  EXPECT_FALSE(Reads(pattern, 1, 700, 333));
  EXPECT_FALSE(Reads(pattern, 0, 700, 700 - 470));
}

TEST(MInference, BlockSparseReadsTheBestBlocks) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{700, 700}, {704, 704}, {600, 777}}) {
    PrefillScene scene(queries, keys, 4, 2, 3);
    const SparsePattern pattern = PatternOf(scene, {.pattern = PatternKind::kBlockSparse, .blocks = 5});
    ExpectSound(pattern, scene);
    const BlockGrid grid = GridOf(scene.Input(), 64);
    for (int head = 0; head < 4; ++head) {
      EXPECT_TRUE(pattern.heads[static_cast<size_t>(head)].columns.empty());
      for (int64_t b = 0; b < grid.first_dense(); ++b) {
        std::vector<std::pair<double, int32_t>> ranked;
        std::set<int32_t> expected = {0};
        for (int64_t j = grid.FirstDiagonal(b); j <= grid.LastDiagonal(b); ++j)
          expected.insert(static_cast<int32_t>(j));
        for (int64_t j = 1; j < grid.FirstDiagonal(b); ++j) {
          double sum = 0;
          for (int64_t i = b * 64; i < b * 64 + 64; ++i) {
            for (int64_t k = j * 64; k < j * 64 + 64; ++k) sum += scene.Score(head, i, k);
          }
          ranked.emplace_back(-sum, static_cast<int32_t>(j));
        }
        std::sort(ranked.begin(), ranked.end());
        for (const auto& [sum, j] : ranked) {
          if (expected.size() < 5) expected.insert(j);
        }
        const std::vector<int32_t>& read =
            pattern.heads[static_cast<size_t>(head)].key_blocks[static_cast<size_t>(b)];
        EXPECT_EQ(std::set<int32_t>(read.begin(), read.end()), expected) << head << ", block " << b;
      }
    }
  }
}

TEST(MInference, AShapeReadsTheFirstAndTheNearestKeys) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{700, 700}, {704, 704}, {600, 777}}) {
    PrefillScene scene(queries, keys, 2, 1);
    const SparsePattern pattern =
        PatternOf(scene, {.pattern = PatternKind::kAShape, .first = 65, .nearest = 100});
    ExpectSound(pattern, scene);
    const BlockGrid grid = GridOf(scene.Input(), 64);
    for (int64_t b = 0; b < grid.first_dense(); ++b) {
      std::set<int32_t> expected;
      for (int64_t j = 0; j <= grid.LastDiagonal(b); ++j) {
        // Two blocks hold 65 keys, and 100 keys before the block's own rows begin at most two blocks earlier.
        if (j < 2 || j >= grid.FirstDiagonal(b) - 1) expected.insert(static_cast<int32_t>(j));
      }
      for (const SparsePattern::Head& head : pattern.heads) {
        const std::vector<int32_t>& read = head.key_blocks[static_cast<size_t>(b)];
        EXPECT_EQ(std::set<int32_t>(read.begin(), read.end()), expected) << "block " << b;
      }
    }
  }
}

// Each head has the pattern that a policy with this pattern for all heads gives it.
TEST(MInference, AFileGivesEachHeadItsPattern) {
  PrefillScene scene(700, 700, 4, 2, 5);
  const std::vector<HeadPattern> of_heads = {{PatternKind::kAShape, 65, 100},
                                             {PatternKind::kBlockSparse, 5, 0},
                                             {PatternKind::kBlockSparse, 100, 0},  // covers the prompt
                                             {PatternKind::kVerticalSlash, 40, 120}};
  HeadPatterns patterns;
  patterns.heads.assign(4, {4, HeadPattern{PatternKind::kAShape, 700, 700}});
  patterns.heads[3] = of_heads;  // the scene's layer
  const auto file = std::make_shared<const HeadPatterns>(patterns);
  const SparsePattern mixed = PatternOf(scene, {.heads = file});
  ExpectSound(mixed, scene);
  const auto alone = [&](size_t h) {
    const HeadPattern& p = of_heads[h];
    return PatternOf(scene, {.pattern = p.kind,
                             .vertical = p.first,
                             .slash = p.second,
                             .blocks = p.first,
                             .first = p.first,
                             .nearest = p.second})
        .heads[h];
  };
  for (const size_t h : {0, 1, 3}) {
    EXPECT_EQ(mixed.heads[h].columns, alone(h).columns) << h;
    EXPECT_EQ(mixed.heads[h].key_blocks, alone(h).key_blocks) << h;
  }
  for (size_t b = 0; b < mixed.heads[2].key_blocks.size(); ++b)
    EXPECT_EQ(mixed.heads[2].key_blocks[b].size(), b + 1);
  patterns.heads[3].assign(4, HeadPattern{PatternKind::kAShape, 700, 700});
  EXPECT_TRUE(PatternOf(scene, {.heads = std::make_shared<const HeadPatterns>(patterns)}).empty());
}

TEST(MInference, EqualMassGoesToTheEarlierColumnAndTheNearerDiagonal) {
  PrefillScene scene(512, 512, 1, 1);
  for (int64_t i = 0; i < 512; ++i) std::fill_n(scene.Query(0, i).begin(), PrefillScene::kDim, 0.0f);
  const SparsePattern pattern = PatternOf(scene, {.vertical = 40, .slash = 120});
  ExpectSound(pattern, scene);
  const std::vector<int32_t>& columns = pattern.heads[0].columns;
  ASSERT_EQ(columns.size(), 40u);
  EXPECT_EQ(columns.back(), 39);  // keys that all 64 queries see have the same mass
  // The nearest 120 diagonals touch this block and the two before it.
  EXPECT_EQ(pattern.heads[0].key_blocks[4], (std::vector<int32_t>{2, 3, 4}));
}

TEST(MInference, AShortPromptStaysDense) {
  MInferencePolicy lines({.vertical = 40, .slash = 160});
  ExpectDenseWhereNothingIsChosen(lines, 200);
  MInferencePolicy blocks({.pattern = PatternKind::kBlockSparse, .blocks = 4});
  ExpectDenseWhereNothingIsChosen(blocks, 256);
}

TEST(MInference, NansAreNotChosenAndBreakNothing) {
  PrefillScene scene(600, 600);
  scene.Query(0, 590)[0] = std::numeric_limits<float>::quiet_NaN();
  scene.Query(1, 70)[0] = std::numeric_limits<float>::quiet_NaN();
  ExpectSound(PatternOf(scene, {.vertical = 40, .slash = 110}), scene);
  ExpectSound(PatternOf(scene, {.pattern = PatternKind::kBlockSparse, .blocks = 3}), scene);
}

TEST(MInferenceMethod, Settings) {
  const MethodInfo method = MInferenceMethod();
  EXPECT_EQ(SettingsOf(method, "minference"),
            "minference:pattern=vertical_slash,vertical=1000,slash=6096,blocks=100,first=1024,nearest=4096,"
            "heads=none,min=8192");
  EXPECT_EQ(SettingsOf(method, "minference:vertical=512,slash=2048,min=0"),
            "minference:pattern=vertical_slash,vertical=512,slash=2048,blocks=100,first=1024,nearest=4096,"
            "heads=none,min=0");
  SettingsOf(method, "minference:pattern=block_sparse,blocks=7");
  EXPECT_EQ(method.traits, kSparsePrefill);
  EXPECT_THAT(RefusalOf(method, "minference:vertical=29"), HasSubstr("vertical=29"));
  EXPECT_THAT(RefusalOf(method, "minference:slash=99"), HasSubstr("slash=99"));
  EXPECT_THAT(RefusalOf(method, "minference:blocks=1"), HasSubstr("blocks=1"));
  SettingsOf(method, "minference:pattern=a_shape,first=128,nearest=512");
  EXPECT_THAT(RefusalOf(method, "minference:pattern=b_shape"), HasSubstr("b_shape"));
  EXPECT_THAT(RefusalOf(method, "minference:first=0"), HasSubstr("first=0"));
  EXPECT_THAT(RefusalOf(method, "minference:heads=absent.json"), HasSubstr("absent.json"));
  EXPECT_THAT(RefusalOf(method, "minference:sink=1"), HasSubstr("unknown key 'sink'"));
}

TEST(MInferenceMethod, StandsAside) {
  const MethodInfo method = MInferenceMethod();
  EXPECT_EQ(MakeMethod(method, "minference", Llama8B(), 8192).reason, "");
  EXPECT_NE(MakeMethod(method, "minference", Llama8B(), 8192).policy, nullptr);
  EXPECT_THAT(MakeMethod(method, "minference", Llama8B(), 8191).reason,
              HasSubstr("below its break-even of 8192"));
  EXPECT_THAT(MakeMethod(method, "minference:min=0", Llama8B(), 7096).reason, HasSubstr("covers 7096"));
  EXPECT_EQ(MakeMethod(method, "minference:min=0", Llama8B(), 7097).reason, "");
  EXPECT_THAT(MakeMethod(method, "minference:min=0,pattern=block_sparse", Llama8B(), 6400).reason,
              HasSubstr("covers"));
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  const MethodInstance aside = MakeMethod(method, "minference", windowed, 32768);
  EXPECT_THAT(aside.reason, HasSubstr("sliding window of 4096"));
  EXPECT_EQ(aside.policy, nullptr);
}

}  // namespace
}  // namespace coppice
