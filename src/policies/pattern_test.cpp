#include "policies/pattern.h"

#include <gtest/gtest.h>

#include "policies/methods/flashprefill.h"
#include "policies/methods/flexprefill.h"
#include "policies/methods/minference.h"
#include "policies/methods/xattention.h"
#include "policies/pattern_test_support.h"

namespace coppice {
namespace {

using Blocks = std::vector<int32_t>;

TEST(BlockGrid, DiagonalBlocksHoldTheQueries) {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{1, 1}, {200, 200}, {256, 256}, {200, 301}, {130, 1000}}) {
    for (const int block : {16, 64, 100, 512}) {
      const BlockGrid grid{.queries = queries, .keys = keys, .block = block};
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t own = (keys - queries + i) / block;
        EXPECT_LE(grid.FirstDiagonal(i / block), own);
        EXPECT_GE(grid.LastDiagonal(i / block), own);
        EXPECT_EQ(i / block >= grid.first_dense(),
                  std::min((i / block + 1) * block, queries) > queries - kDenseRows);
      }
      EXPECT_LT(grid.LastDiagonal(grid.query_blocks() - 1), grid.key_blocks());
    }
  }
}

TEST(BlockGrid, ADiagonalLiesInTheBlockDiagonalsOfItsPairs) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{320, 320}, {320, 333}, {320, 384}}) {
    const BlockGrid grid{.queries = queries, .keys = keys, .block = 64};
    for (int64_t d = 0; d < keys; ++d) {
      const BlockGrid::Place place = grid.PlaceOf(d);
      // The pairs of a whole query block far enough down that they all exist.
      const int64_t b = 1000;
      int64_t first = 0, second = 0;
      for (int64_t x = 0; x < 64; ++x) {
        const int64_t diagonal = (keys - queries + b * 64 + x - d) / 64 - b;
        first += diagonal == place.first;
        second += diagonal == place.first + 1;
      }
      EXPECT_EQ(first + second, 64) << d;
      EXPECT_DOUBLE_EQ(place.second_share, static_cast<double>(second) / 64) << d;
    }
  }
}

TEST(KeyBlocksOf, AddsTheDiagonalAndCutsWhatIsBeyond) {
  const BlockGrid grid{.queries = 300, .keys = 310, .block = 64};  // five blocks each; rows begin at key 10
  const std::vector<uint8_t> none(5, 0), all(5, 1);
  EXPECT_EQ(KeyBlocksOf(grid, 0, none), (Blocks{0, 1}));  // keys 10 to 73
  EXPECT_EQ(KeyBlocksOf(grid, 1, none), (Blocks{1, 2}));
  EXPECT_EQ(KeyBlocksOf(grid, 1, all), (Blocks{0, 1, 2}));
  EXPECT_EQ(KeyBlocksOf(grid, 2, none), (Blocks{0, 1, 2, 3}));  // row 172 is among the last 128
  EXPECT_EQ(KeyBlocksOf(grid, 4, none), (Blocks{0, 1, 2, 3, 4}));
}

TEST(StaysDense, WithoutRowsToThinOut) {
  const BlockGrid grid{.queries = 300, .keys = 300, .block = 64};
  AttentionScene scene;
  EXPECT_FALSE(StaysDense(scene, grid));
  EXPECT_TRUE(StaysDense(scene, {.queries = 128, .keys = 300, .block = 64}));
  EXPECT_TRUE(
      StaysDense(scene, {.queries = 150, .keys = 300, .block = 64}));  // no whole block before the last 128
  scene.pruned = true;
  EXPECT_TRUE(StaysDense(scene, grid));
  scene = {};
  scene.phase = Phase::kDecode;
  EXPECT_TRUE(StaysDense(scene, grid));
}

TEST(MassOfLines, AgreesWithPlainSums) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{150, 150}, {70, 190}, {20, 20}}) {
    for (const bool alibi : {false, true}) {
      PrefillScene scene(queries, keys, 4, 2);
      if (alibi) scene.Alibi({0.1f, 0.05f, 0.02f, 0.01f});
      for (int head = 0; head < 4; ++head) {
        const LineMass mass = MassOfLines(OneHead(scene.Input(), head), 64, *scene.be);
        const int64_t m = std::min<int64_t>(64, queries);
        std::vector<double> columns(static_cast<size_t>(keys)), diagonals(static_cast<size_t>(keys));
        for (int64_t i = queries - m; i < queries; ++i) {
          const std::vector<double> a = scene.Weights(head, i);
          for (int64_t j = 0; j <= keys - queries + i; ++j) {
            columns[static_cast<size_t>(j)] += a[static_cast<size_t>(j)] / m;
            diagonals[static_cast<size_t>(keys - queries + i - j)] += a[static_cast<size_t>(j)] / m;
          }
        }
        for (size_t j = 0; j < columns.size(); ++j) {
          ASSERT_NEAR(mass.columns[j], columns[j], 1e-6) << j;
          ASSERT_NEAR(mass.diagonals[j], diagonals[j], 1e-6) << j;
        }
      }
    }
  }
}

TEST(MeanRows, TheLastBlockHasTheRowsThatItHas) {
  std::vector<float> rows = {1, 10, 2, 20, 3, 30, 4, 40, 7, 70};
  const TensorView view(rows.data(), DType::kF32, 5, 2);
  const std::unique_ptr<Backend> be = MakeBackend("reference", {});
  const Tensor means = MeanRows(view, 2, *be);
  ASSERT_EQ(means.rows(), 3);
  EXPECT_EQ(means.view().Row<float>(0)[0], 1.5f);
  EXPECT_EQ(means.view().Row<float>(1)[1], 35.0f);
  EXPECT_EQ(means.view().Row<float>(2)[0], 7.0f);
  const Tensor whole = MeanRows(view, 64, *be);
  EXPECT_EQ(whole.view().Row<float>(0)[1], 34.0f);
  Tensor narrow(DType::kBF16, 5, 2);
  be->Convert(view, narrow.mutable_view());
  const Tensor from_bf16 = MeanRows(narrow.view().Cols(1, 1), 2, *be);
  EXPECT_EQ(from_bf16.view().Row<float>(1)[0], 35.0f);
}

TEST(PooledMap, IsTheSoftmaxOfMeanQueriesAndKeys) {
  for (const int64_t offset : {0, 50, 64}) {
    PrefillScene scene(330, 330 + offset, 4, 2);
    scene.Alibi({0.01f, 0.02f, 0.005f, 0.0f});
    const BlockGrid grid = GridOf(scene.Input(), 64);
    for (int head = 0; head < 4; ++head) {
      const AttentionInput one = OneHead(scene.Input(), head);
      const MeanKeys keys = MeanKeysOf(one, 64, *scene.be);
      const Tensor mean_queries = MeanRows(one.queries, 64, *scene.be);
      const Tensor map = PooledMap(one, mean_queries.view(), keys, 64, *scene.be);
      const auto middle = [](int64_t begin, int64_t end) { return begin + (end - 1 - begin) / 2; };
      for (int64_t b = 0; b < grid.query_blocks(); ++b) {
        const int64_t q_begin = b * 64, q_end = std::min<int64_t>(q_begin + 64, 330);
        const int64_t q_middle = offset + middle(q_begin, q_end);
        std::vector<double> expected;
        for (int64_t j = 0; j < grid.key_blocks(); ++j) {
          const int64_t begin = j * 64, end = std::min(begin + 64, scene.keys());
          if (middle(begin, end) > q_middle) break;
          double sum = 0;  // of all pairs: the product of the means
          for (int64_t i = q_begin; i < q_end; ++i) {
            for (int64_t k = begin; k < end; ++k)
              sum += scene.Score(head, i, k) - scene.Bias(head, k - offset - i);
          }
          expected.push_back(sum / ((q_end - q_begin) * (end - begin)) +
                             scene.Bias(head, middle(begin, end) - q_middle));
        }
        ASSERT_FALSE(expected.empty());
        PrefillScene::NaiveSoftmax(expected);
        expected.resize(static_cast<size_t>(grid.key_blocks()), 0.0);
        for (size_t j = 0; j < expected.size(); ++j)
          EXPECT_NEAR(map.view().Row<float>(b)[j], expected[j], 1e-5) << b << ", " << j;
      }
    }
  }
}

std::vector<std::unique_ptr<TokenPolicy>> EveryMethod() {
  std::vector<std::unique_ptr<TokenPolicy>> methods;
  methods.push_back(std::make_unique<MInferencePolicy>(MInferenceConfig{.vertical = 40, .slash = 110}));
  methods.push_back(std::make_unique<MInferencePolicy>(
      MInferenceConfig{.pattern = PatternKind::kBlockSparse, .blocks = 3}));
  methods.push_back(
      std::make_unique<FlexPrefillPolicy>(FlexPrefillConfig{.gamma = 0.5, .tau = 0, .min_budget = 1}));
  methods.push_back(
      std::make_unique<FlexPrefillPolicy>(FlexPrefillConfig{.gamma = 0.5, .tau = 1, .min_budget = 1}));
  methods.push_back(std::make_unique<XAttentionPolicy>(XAttentionConfig{.threshold = 0.5}));
  methods.push_back(std::make_unique<FlashPrefillPolicy>(
      FlashPrefillConfig{.alpha = 1, .block = 32, .sink = 1, .window = 1}));
  return methods;
}

// What the other methods take from these rows stays exact.
TEST(SparsePrefill, TheLastRowsHaveTheBitsOfDenseAttention) {
  for (const char* name : {"reference", "cpu"}) {
    const std::unique_ptr<Backend> be = MakeBackend(name, {.threads = 2, .exact = true});
    PrefillScene scene(777, 800, 4, 2);
    AttentionScene asked = scene.Scene();
    asked.in.values = asked.in.keys;
    Tensor dense(DType::kF32, 777, asked.in.queries.cols), sparse(DType::kF32, 777, asked.in.queries.cols);
    be->Attention(asked.in, dense.mutable_view());
    for (const std::unique_ptr<TokenPolicy>& method : EveryMethod()) {
      const SparsePattern pattern = method->Pattern(asked, *be);
      ExpectSound(pattern, scene);
      EXPECT_LT(PatternDensity(pattern, 777, 800), 0.95);
      be->SparseAttention(asked.in, pattern, 0, sparse.mutable_view());
      const auto same = [&](int64_t row) {
        const auto a = dense.view().Row<float>(row), b = sparse.view().Row<float>(row);
        return std::equal(a.begin(), a.end(), b.begin());
      };
      for (int64_t row = 777 - kDenseRows; row < 777; ++row)
        EXPECT_TRUE(same(row)) << name << ", row " << row;
      EXPECT_FALSE(same(500)) << name;
    }
  }
}

TEST(SparsePrefill, ThreadsAndPriorCallsDoNotChangeAPattern) {
  PrefillScene scene(900, 900, 4, 2);
  const std::unique_ptr<Backend> one = MakeBackend("cpu", {.threads = 1, .exact = true});
  const std::unique_ptr<Backend> three = MakeBackend("cpu", {.threads = 3, .exact = true});
  for (const std::unique_ptr<TokenPolicy>& method : EveryMethod()) {
    const SparsePattern pattern = method->Pattern(scene.Scene(), *one);
    EXPECT_FALSE(pattern.empty());
    EXPECT_TRUE(SamePattern(pattern, method->Pattern(scene.Scene(), *three)));
    EXPECT_TRUE(SamePattern(pattern, method->Pattern(scene.Scene(), *one)));
  }
}

}  // namespace
}  // namespace coppice
