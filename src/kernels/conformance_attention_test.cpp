// Attention, attention mass and unit scores of every backend, against fp64 and, bit for bit, between
// different calls.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class AttentionConformance : public ConformanceTest {
 protected:
  // The reference backend supports every cache type. The others support their own and, if heads are whole
  // blocks, Q8_0.
  std::vector<DType> CacheTypes(int head_dim) {
    std::vector<DType> types = {be().cache_dtype()};
    if (GetParam().name == "reference") types = {DType::kF32, DType::kBF16, DType::kF16};
    if (head_dim % 32 == 0) types.push_back(DType::kQ8_0);
    return types;
  }
  Tensor Attend(const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    be().Attention(in, out.mutable_view());
    return out;
  }
  Tensor Mass(const AttentionInput& in, std::span<const float> query_weights = {},
              MassPool pool = MassPool::kSum) {
    Tensor mass(DType::kF32, 1, in.keys.rows);
    be().AttentionMass(in, query_weights, pool, mass.mutable_view());
    return mass;
  }
};

Matrix NaiveMass(const AttentionInput& in, const std::vector<float>& query_weights = {},
                 MassPool pool = MassPool::kSum) {
  Matrix mass(1, std::vector<double>(in.keys.rows, 0.0));
  for (int h = 0; h < in.shape.heads; ++h) {
    const Matrix a = NaiveWeights(in, h);
    for (size_t i = 0; i < a.size(); ++i) {
      const double weight = query_weights.empty() ? 1 : query_weights[i];
      for (size_t j = 0; j < a[i].size(); ++j) {
        double& pooled = mass[0][j];
        pooled = pool == MassPool::kSum ? pooled + weight * a[i][j] : std::max(pooled, weight * a[i][j]);
      }
    }
  }
  return mass;
}

Matrix NaiveUnitScores(const AttentionInput& in, int unit, KeyPool pool) {
  const Matrix q = ToMatrix(in.queries);
  const Matrix k = ToMatrix(in.keys);
  const int dim = in.shape.head_dim;
  const int group = in.shape.heads / in.shape.kv_heads;
  Matrix scores(1);
  for (size_t begin = 0; begin < k.size(); begin += unit) {
    const size_t end = std::min(begin + unit, k.size());
    double sum = 0;  // the mean of the products over queries is the product of the mean
    for (int c = 0; c < in.shape.heads * dim; ++c) {
      const int column = c / dim / group * dim + c % dim;
      double mean = 0;
      double maximum = k[begin][column];
      for (size_t j = begin; j < end; ++j) {
        mean += k[j][column] / (end - begin);
        maximum = std::max(maximum, k[j][column]);
      }
      for (const std::vector<double>& query : q) sum += query[c] * (pool == KeyPool::kMax ? maximum : mean);
    }
    scores[0].push_back(sum / (q.size() * in.shape.heads));
  }
  return scores;
}

TEST_P(AttentionConformance, MatchesFp64) {
  for (const AttentionCase& c : Cases()) {
    for (DType type : CacheTypes(c.head_dim)) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c, type);
      ExpectClose(Attend(data.Input()), NaiveAttention(data.Input()), tolerance());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionConformance, MassMatchesFp64AndAddsUp) {
  for (const AttentionCase& c : Cases()) {
    for (DType type : CacheTypes(c.head_dim)) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c, type);
      const Tensor mass = Mass(data.Input());
      ExpectClose(mass.view(), NaiveMass(data.Input()), tolerance());
      double total = 0;
      for (float v : mass.view().Row<float>(0)) total += v;
      if (!c.sinks) EXPECT_NEAR(total, c.heads * c.m, tolerance() * c.heads * c.m);
      if (HasFatalFailure()) return;
    }
  }
}

// A weight per query, for LazyLLM's average over steps.
TEST_P(AttentionConformance, WeightedMassMatchesFp64) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, be().cache_dtype());
    std::vector<float> weights;
    double sum = 0;
    for (int i = 0; i < c.m; ++i) {
      weights.push_back(i % 5 == 0 ? 0.01f : 1.0f / static_cast<float>(i + 1));
      sum += weights.back();
    }
    const Tensor mass = Mass(data.Input(), weights);
    ExpectClose(mass.view(), NaiveMass(data.Input(), weights), tolerance());
    double total = 0;
    for (float v : mass.view().Row<float>(0)) total += v;
    if (!c.sinks) EXPECT_NEAR(total, c.heads * sum, tolerance() * c.heads * sum);
    const std::vector<float> ones(c.m, 1.0f);
    EXPECT_TRUE(SameBits(Mass(data.Input(), ones), Mass(data.Input())));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionConformance, MaximumOverHeadsAndQueriesMatchesFp64) {
  for (const AttentionCase& c : Cases()) {
    for (DType type : CacheTypes(c.head_dim)) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c, type);
      const Tensor maximum = Mass(data.Input(), {}, MassPool::kMaximum);
      ExpectClose(maximum.view(), NaiveMass(data.Input(), {}, MassPool::kMaximum), tolerance());
      std::vector<float> weights;
      for (int i = 0; i < c.m; ++i) weights.push_back(i % 2 == 0 ? 2.0f : 0.5f);
      ExpectClose(Mass(data.Input(), weights, MassPool::kMaximum),
                  NaiveMass(data.Input(), weights, MassPool::kMaximum), 2 * tolerance());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionConformance, UnitScoresMatchFp64) {
  for (const AttentionCase& c : Cases()) {
    if (c.n < 19) continue;  // a few scores may all cancel, which leaves no scale for the error
    for (DType type : CacheTypes(c.head_dim)) {
      const AttentionData data(c, type);
      AttentionInput in = data.Input();
      in.queries = in.queries.Rows(std::max(0, c.m - 4), std::min(4, c.m));
      in.query_positions = {};  // must not be read
      in.key_positions = {};
      in.values = {};
      for (int unit : {1, 8}) {
        SCOPED_TRACE(::testing::PrintToString(c) + " unit " + std::to_string(unit));
        Tensor scores(DType::kF32, 1, (in.keys.rows + unit - 1) / unit);
        for (KeyPool pool : {KeyPool::kMean, KeyPool::kMax}) {
          be().UnitScores(in, unit, pool, scores.mutable_view());
          ExpectClose(scores.view(), NaiveUnitScores(in, unit, pool), tolerance());
        }
      }
    }
  }
}

TEST_P(AttentionConformance, AQueryIsTheSameInAnyCompany) {
  for (const AttentionCase& c : Cases()) {
    for (DType type : CacheTypes(c.head_dim)) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c, type);
      const AttentionInput in = data.Input();
      const Tensor all = Attend(in);
      for (int step : {1, 3, 17}) {  // every step-th query, from the second on, and the last one alone
        std::vector<int32_t> rows;
        for (int i = 1; i < c.m; i += step) rows.push_back(i);
        if (step == 17) rows = {c.m - 1};
        AttentionInput some = in;
        Tensor queries(DType::kF32, rows.size(), in.queries.cols);
        Tensor expected(DType::kF32, rows.size(), in.queries.cols);
        be().GatherRows(in.queries, rows, queries.mutable_view());
        be().GatherRows(all.view(), rows, expected.mutable_view());
        std::vector<int32_t> positions;
        for (int32_t row : rows) positions.push_back(data.query_positions[row]);
        some.queries = queries.view();
        some.query_positions = positions;
        ASSERT_TRUE(SameBits(Attend(some), expected.view())) << "every " << step;
      }
    }
  }
}

// Tiles of queries in order, each over the keys up to its last query, one kv head at a time. Later calls can
// use what earlier calls have packed.
TEST_P(AttentionConformance, SharingPackedKeysChangesNothing) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, be().cache_dtype());
    const AttentionInput in = data.Input();
    const Tensor whole = Attend(in);
    const int64_t columns = int64_t{c.heads / c.kv_heads} * c.head_dim;
    PackedCache packed;
    packed.Begin(c.kv_heads, in.keys.rows);
    for (int64_t first = 0; first < c.m; first += 50) {
      const int64_t count = std::min<int64_t>(50, c.m - first);
      AttentionInput some = RowsOf(in, first, count);
      const auto seen =
          std::upper_bound(in.key_positions.begin(), in.key_positions.end(), some.query_positions.back());
      some = FirstKeys(some, seen - in.key_positions.begin());
      some.packed = &packed;
      for (int g = 0; g < c.kv_heads; ++g) {
        const AttentionInput one = HeadOf(some, g);
        Tensor out(DType::kF32, count, columns);
        be().Attention(one, out.mutable_view());
        ASSERT_TRUE(SameBits(out, whole.view().Rows(first, count).Cols(g * columns, columns)))
            << "kv head " << g << ", queries from " << first;
      }
    }
  }
}

TEST_P(AttentionConformance, LaterKeysChangeNothing) {  // a query cannot see them
  const AttentionCase c{.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 200, .m = 200};
  const AttentionData data(c, be().cache_dtype());
  const AttentionInput in = data.Input();
  const Tensor all = Attend(in);
  for (int count : {1, 50, 127, 199}) {
    AttentionInput part = in;
    part.queries = in.queries.Rows(0, count);
    part.query_positions = in.query_positions.first(count);
    part.keys = in.keys.Rows(0, count);
    part.values = in.values.Rows(0, count);
    part.key_positions = in.key_positions.first(count);
    EXPECT_TRUE(SameBits(Attend(part), all.view().Rows(0, count))) << count;
  }
}

TEST_P(AttentionConformance, KeepingAllKeysIsTheIdentity) {
  for (const AttentionCase& c : Cases()) {
    const AttentionData data(c, be().cache_dtype());
    const AttentionInput in = data.Input();
    const std::vector<int32_t> rows = TokenSet::All(in.keys.rows).ToRows();
    Tensor keys(in.keys.dtype, in.keys.rows, in.keys.cols);
    Tensor values(in.keys.dtype, in.keys.rows, in.keys.cols);
    be().GatherRows(in.keys, rows, keys.mutable_view());
    be().GatherRows(in.values, rows, values.mutable_view());
    AttentionInput gathered = in;
    gathered.keys = keys.view();
    gathered.values = values.view();
    EXPECT_TRUE(SameBits(Attend(gathered), Attend(in))) << ::testing::PrintToString(c);
    EXPECT_TRUE(SameBits(Mass(gathered), Mass(in))) << ::testing::PrintToString(c);
  }
}

TEST_P(AttentionConformance, ThreadsChangeNothing) {
  const AttentionData data({.heads = 7, .kv_heads = 1, .head_dim = 64, .n = 300, .m = 130},
                           be().cache_dtype());
  const AttentionInput in = data.Input();
  const Tensor out = Attend(in);
  const Tensor mass = Mass(in);
  std::vector<float> weights(in.queries.rows);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0f / static_cast<float>(i + 1);
  const Tensor weighted = Mass(in, weights);
  const Tensor maximum = Mass(in, {}, MassPool::kMaximum);
  for (int threads : {1, 3}) {
    const std::unique_ptr<Backend> other = Make(threads);
    Tensor y(DType::kF32, in.queries.rows, in.queries.cols);
    Tensor sums(DType::kF32, 1, in.keys.rows);
    other->Attention(in, y.mutable_view());
    other->AttentionMass(in, {}, MassPool::kSum, sums.mutable_view());
    EXPECT_TRUE(SameBits(y.view(), out.view())) << threads;
    EXPECT_TRUE(SameBits(sums.view(), mass.view())) << threads;
    other->AttentionMass(in, weights, MassPool::kSum, sums.mutable_view());
    EXPECT_TRUE(SameBits(sums.view(), weighted.view())) << threads;
    other->AttentionMass(in, {}, MassPool::kMaximum, sums.mutable_view());
    EXPECT_TRUE(SameBits(sums.view(), maximum.view())) << threads;
  }
}

TEST_P(AttentionConformance,
       ColumnsOfWiderMatrices) {  // q, k and v of one fused product, and rows of a larger cache
  const AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 40, .m = 40}, be().cache_dtype());
  const Tensor wide_queries = Random(40, 400, 5);
  const Tensor wide_cache = Converted(Random(60, 256, 6), be().cache_dtype());
  AttentionInput in = data.Input();
  in.queries = wide_queries.view().Cols(100, 128);
  in.keys = wide_cache.view().Rows(10, 40).Cols(64, 64);
  in.values = wide_cache.view().Rows(10, 40).Cols(192, 64);
  Tensor wide_out(DType::kF32, 40, 300);
  be().Attention(in, wide_out.mutable_view().Cols(50, 128));
  ExpectClose(wide_out.view().Cols(50, 128), NaiveAttention(in), tolerance());
  ExpectClose(Mass(in), NaiveMass(in), tolerance());
}

TEST_P(AttentionConformance, HugeScoresStayAWeightedMean) {  // exp overflows fp32 above 88
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 90, .m = 90}, be().cache_dtype());
  data.queries = Random(90, 128, 5, 1e4f);
  const Tensor out = Attend(data.Input());
  const Matrix v = ToMatrix(data.values.view());
  for (int64_t i = 0; i < 90; ++i) {
    for (int64_t c = 0; c < 128; ++c) {
      double low = v[0][c % 64];
      double high = low;
      for (int64_t j = 0; j <= i; ++j) {
        low = std::min(low, v[j][c % 64]);
        high = std::max(high, v[j][c % 64]);
      }
      const double actual = out.view().Row<float>(i)[c];
      ASSERT_GE(actual, low - 0.02) << i;
      ASSERT_LE(actual, high + 0.02) << i;
    }
  }
}

TEST_P(AttentionConformance, WrongShapesFail) {
  const AttentionData data({.heads = 4, .kv_heads = 2, .head_dim = 8, .n = 10, .m = 3}, be().cache_dtype());
  const AttentionInput good = data.Input();
  Tensor out(DType::kF32, 3, 32);
  Tensor mass(DType::kF32, 1, 10);
  Tensor units(DType::kF32, 1, 2);
  const auto expect_failure = [&](const AttentionInput& in) {
    EXPECT_THROW(be().Attention(in, out.mutable_view()), CheckFailure);
    EXPECT_THROW(be().AttentionMass(in, {}, MassPool::kSum, mass.mutable_view()), CheckFailure);
  };
  AttentionInput in = good;
  in.shape.kv_heads = 3;
  expect_failure(in);
  in = good;
  in.shape.head_dim = 4;
  expect_failure(in);
  in = good;
  in.key_positions = in.key_positions.first(9);
  expect_failure(in);
  in = good;
  in.query_positions = in.query_positions.first(2);
  expect_failure(in);
  in = good;
  in.values = in.values.Rows(0, 9);
  EXPECT_THROW(be().Attention(in, out.mutable_view()), CheckFailure);
  const std::vector<float> slopes(3, 0.5f);
  in = good;
  in.shape.alibi_slopes = slopes;
  expect_failure(in);
  in = good;
  in.shape.sinks = slopes;
  expect_failure(in);
  EXPECT_THROW(be().Attention(good, out.mutable_view().Cols(0, 16)), CheckFailure);
  EXPECT_THROW(be().AttentionMass(good, {}, MassPool::kSum, mass.mutable_view().Cols(0, 9)), CheckFailure);
  for (const std::vector<float>& weights :
       {std::vector<float>{1, 1}, {1, 0, 1}, {1, -1, 1}, {1, 1, std::numeric_limits<float>::infinity()}}) {
    EXPECT_THROW(be().AttentionMass(good, weights, MassPool::kSum, mass.mutable_view()), CheckFailure);
  }
  const Tensor none(good.keys.dtype, 0, good.keys.cols);
  in = good;
  in.keys = none.view();
  be().UnitScores(in, 4, KeyPool::kMax, units.mutable_view().Cols(0, 0));  // no keys, no units
  EXPECT_THROW(be().UnitScores(good, 4, KeyPool::kMean, units.mutable_view()), CheckFailure);
  EXPECT_THROW(be().UnitScores(good, 0, KeyPool::kMean, units.mutable_view()), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionConformance, ::testing::ValuesIn(kAttentionConfigs), ConfigName);

}  // namespace
}  // namespace coppice
