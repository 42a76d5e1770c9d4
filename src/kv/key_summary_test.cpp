#include "kv/key_summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace coppice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor RandomRows(int64_t rows, int64_t cols, std::mt19937& random) {
  Tensor t(DType::kF32, rows, cols);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows; ++i) {
    for (float& v : t.mutable_view().Row<float>(i)) v = normal(random);
  }
  return t;
}

std::vector<int32_t> Iota(int32_t count) {
  std::vector<int32_t> list(count);
  std::iota(list.begin(), list.end(), 0);
  return list;
}

struct Case {
  const char* name;
  int heads, kv_heads, head_dim, queries, unit;
  KeyPool pool;
};

// SlimInfer's eq. 1 as written, head by head in fp64: mean_h q̄_h . k̄_{u,g(h)}, over the keys of the unit
// that `has` marks.
double NaiveScore(const Case& c, const TensorView& queries, const TensorView& keys,
                  const std::vector<bool>& has, int64_t unit) {
  const int64_t first = std::max<int64_t>(0, queries.rows - c.queries);
  double score = 0;
  for (int h = 0; h < c.heads; ++h) {
    for (int d = 0; d < c.head_dim; ++d) {
      double query = 0;
      for (int64_t i = first; i < queries.rows; ++i) query += queries.Row<float>(i)[h * c.head_dim + d];
      query /= static_cast<double>(queries.rows - first);
      double sum = 0, largest = -kInfinity;
      int count = 0;
      for (int64_t j = unit * c.unit; j < std::min((unit + 1) * c.unit, keys.rows); ++j) {
        if (!has[j]) continue;
        const double key = keys.Row<float>(j)[h / (c.heads / c.kv_heads) * c.head_dim + d];
        sum += key;
        largest = std::max(largest, key);
        ++count;
      }
      score += query * (c.pool == KeyPool::kMean ? sum / count : largest);
    }
  }
  return score / c.heads;
}

class UnitKeysTest : public testing::TestWithParam<Case> {};

TEST_P(UnitKeysTest, ScoresAsEquation1) {
  const Case& c = GetParam();
  const AttentionShape shape{.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim};
  const int32_t tokens = 5 * c.unit + c.unit / 2 + 1;  // the last unit is partial
  std::mt19937 random(3);
  const Tensor keys = RandomRows(tokens, int64_t{c.kv_heads} * c.head_dim, random);
  const Tensor queries = RandomRows(2 * c.queries + 1, int64_t{c.heads} * c.head_dim, random);
  const auto backend = MakeBackend("reference", {});

  UnitKeys units(shape, c.queries, c.unit, c.pool, tokens);
  ASSERT_EQ(units.units(), (tokens + c.unit - 1) / c.unit);
  // Keys arrive in any order and in parts. Unit 1 gets none, unit 2 all but one.
  std::vector<bool> has(tokens, true);
  for (int32_t p = c.unit; p < 2 * c.unit; ++p) has[p] = false;
  if (c.unit > 1) has[2 * c.unit] = false;
  std::vector<int32_t> order = Iota(tokens);
  std::shuffle(order.begin(), order.end(), random);
  for (const int32_t p : order) {
    if (has[p]) units.AddKeys(std::span(&p, 1), keys.view().Rows(p, 1));
  }
  Tensor scores(DType::kF32, 1, units.units());
  // Queries arrive in parts too: three, then one at a time.
  for (int64_t seen = 0; seen < queries.rows();) {
    const int64_t part = seen == 0 ? std::min<int64_t>(3, queries.rows()) : 1;
    units.AddQueries(queries.view().Rows(seen, part));
    seen += part;
    units.Score(*backend, scores.mutable_view());
    for (int64_t u = 0; u < units.units(); ++u) {
      const float score = scores.view().Row<float>(0)[u];
      if (u == 1) {
        EXPECT_EQ(score, -kInfinity);
      } else {
        EXPECT_NEAR(score, NaiveScore(c, queries.view().Rows(0, seen), keys.view(), has, u), 1e-5) << u;
      }
    }
  }
  EXPECT_EQ(units.bytes(), units.units() * c.kv_heads * c.head_dim * 4);
}

TEST_P(UnitKeysTest, AgreesWithUnitScoresOfTheBackend) {
  const Case& c = GetParam();
  const int32_t tokens = 7 * c.unit;
  std::mt19937 random(4);
  const Tensor exact = RandomRows(tokens, int64_t{c.kv_heads} * c.head_dim, random);
  const Tensor queries = RandomRows(c.queries, int64_t{c.heads} * c.head_dim, random);
  for (const char* name : {"reference", "cpu"}) {  // keys in fp32, and in bf16 where the CPU supports it
    const auto backend = MakeBackend(name, {.threads = 1});
    Tensor keys(backend->cache_dtype(), tokens, exact.cols());
    backend->Convert(exact.view(), keys.mutable_view());
    const std::vector<int32_t> positions = Iota(tokens);
    const std::vector<int32_t> last = Iota(c.queries);
    AttentionInput in;
    in.shape = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim};
    in.queries = queries.view();
    in.keys = in.values = keys.view();
    std::vector<int32_t> query_positions;
    for (const int32_t i : last) query_positions.push_back(tokens + i);
    in.query_positions = query_positions;
    in.key_positions = positions;
    Tensor expected(DType::kF32, 1, 7);
    backend->UnitScores(in, c.unit, c.pool, expected.mutable_view());

    UnitKeys units(in.shape, c.queries, c.unit, c.pool, tokens);
    units.AddKeys(positions, keys.view());
    units.AddQueries(queries.view());
    Tensor scores(DType::kF32, 1, 7);
    units.Score(*backend, scores.mutable_view());
    for (int64_t u = 0; u < 7; ++u) {
      EXPECT_NEAR(scores.view().Row<float>(0)[u], expected.view().Row<float>(0)[u], 1e-4) << name << " " << u;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, UnitKeysTest,
                         testing::Values(Case{"gqa_mean", 8, 2, 16, 4, 8, KeyPool::kMean},
                                         Case{"gqa_max", 8, 2, 16, 4, 8, KeyPool::kMax},
                                         Case{"mha_mean", 4, 4, 8, 3, 5, KeyPool::kMean},
                                         Case{"one_key_one_query", 6, 3, 4, 1, 1, KeyPool::kMean}),
                         [](const auto& test) { return test.param.name; });

TEST(UnitKeys, CountsThePromptAlone) {
  const auto backend = MakeBackend("reference", {});
  UnitKeys units({.heads = 1, .kv_heads = 1, .head_dim = 1}, 1, 4, KeyPool::kMean, 6);
  const std::vector<float> keys = {1, 2, 3, 100, 200};
  units.AddKeys(std::vector<int32_t>{0, 4, 5, 6, 7}, TensorView(keys.data(), DType::kF32, 5, 1));
  const float query = 2;
  units.AddQueries(TensorView(&query, DType::kF32, 1, 1));
  std::vector<float> scores(2);
  units.Score(*backend, MutableTensorView(scores.data(), DType::kF32, 1, 2));
  EXPECT_EQ(scores, (std::vector<float>{2, 5}));
}

TEST(UnitKeys, RefusesToScoreWithoutQueries) {
  const auto backend = MakeBackend("reference", {});
  UnitKeys units({.heads = 1, .kv_heads = 1, .head_dim = 1}, 1, 4, KeyPool::kMean, 4);
  Tensor scores(DType::kF32, 1, 1);
  EXPECT_THROW(units.Score(*backend, scores.mutable_view()), CheckFailure);
}

TEST(PageBounds, HoldTheSmallestAndTheLargestKeyOfAPage) {
  PageBounds bounds(4, 2);
  EXPECT_EQ(bounds.minimum().rows, 0);
  bounds.AddKeys({}, TensorView(nullptr, DType::kF32, 0, 2));
  EXPECT_EQ(bounds.bytes(), 0);
  const std::vector<float> keys = {1, -5, 3, 2, -2, 7};
  bounds.AddKeys(std::vector<int32_t>{0, 3, 9}, TensorView(keys.data(), DType::kF32, 3, 2));
  ASSERT_EQ(bounds.maximum().rows, 3);
  EXPECT_EQ(bounds.minimum().Row<float>(0)[0], 1);
  EXPECT_EQ(bounds.minimum().Row<float>(0)[1], -5);
  EXPECT_EQ(bounds.maximum().Row<float>(0)[0], 3);
  EXPECT_EQ(bounds.maximum().Row<float>(0)[1], 2);
  EXPECT_EQ(bounds.minimum().Row<float>(1)[0], kInfinity);  // a page without keys
  EXPECT_EQ(bounds.maximum().Row<float>(1)[0], -kInfinity);
  EXPECT_EQ(bounds.minimum().Row<float>(2)[0], -2);
  EXPECT_EQ(bounds.maximum().Row<float>(2)[0], -2);
  EXPECT_EQ(bounds.bytes(), 2 * 3 * 2 * 4);
}

// Quest's invariant: sum_d max(q_d kmin_d, q_d kmax_d) >= q . k for every key of the page, for any query and
// cache type.
TEST(PageBounds, BoundEveryProductOfAPage) {
  constexpr int kPage = 16;
  constexpr int64_t kWidth = 12;
  const int32_t tokens = 9 * kPage + 3;
  std::mt19937 random(5);
  const Tensor exact = RandomRows(tokens, kWidth, random);
  const Tensor queries = RandomRows(20, kWidth, random);
  const auto backend = MakeBackend("reference", {});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Tensor stored(dtype, tokens, kWidth);
    backend->Convert(exact.view(), stored.mutable_view());
    PageBounds bounds(kPage, kWidth);
    const std::vector<int32_t> ids = Iota(tokens);
    for (int32_t p = 0; p < tokens; p += 7) {
      const int32_t count = std::min(7, tokens - p);
      bounds.AddKeys(std::span(ids).subspan(p, count), stored.view().Rows(p, count));
    }
    ASSERT_EQ(bounds.minimum().rows, 10);
    for (int64_t i = 0; i < queries.rows(); ++i) {
      const auto q = queries.view().Row<float>(i);
      std::vector<float> bound(10, 0.0f), best(10, -kInfinity);
      for (int64_t p = 0; p < 10; ++p) {
        for (int64_t d = 0; d < kWidth; ++d) {
          bound[p] +=
              std::max(q[d] * bounds.minimum().Row<float>(p)[d], q[d] * bounds.maximum().Row<float>(p)[d]);
        }
      }
      for (int32_t j = 0; j < tokens; ++j) {
        float product = 0;
        for (int64_t d = 0; d < kWidth; ++d) {
          const float key = dtype == DType::kF32    ? stored.view().Row<float>(j)[d]
                            : dtype == DType::kBF16 ? ToFloat(stored.view().Row<BF16>(j)[d])
                                                    : ToFloat(stored.view().Row<F16>(j)[d]);
          product += q[d] * key;
        }
        best[j / kPage] = std::max(best[j / kPage], product);
      }
      for (int64_t p = 0; p < 10; ++p) EXPECT_GE(bound[p] + 1e-5f, best[p]);
    }
  }
}

// In a page of one key both bounds equal the key, so the score is q . k itself.
TEST(PageBounds, AreTightForOneKey) {
  PageBounds bounds(1, 3);
  std::mt19937 random(6);
  const Tensor keys = RandomRows(20, 3, random);
  bounds.AddKeys(Iota(20), keys.view());
  for (int64_t p = 0; p < 20; ++p) {
    for (int64_t d = 0; d < 3; ++d) {
      EXPECT_EQ(bounds.minimum().Row<float>(p)[d], keys.view().Row<float>(p)[d]);
      EXPECT_EQ(bounds.maximum().Row<float>(p)[d], keys.view().Row<float>(p)[d]);
    }
  }
}

}  // namespace
}  // namespace coppice
