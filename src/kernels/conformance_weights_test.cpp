// The softmax weights, and every attention operation on the columns of one kv head, of every backend: against
// fp64 and, bit for bit, between different calls.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class WeightsConformance : public ConformanceTest {
 protected:
  static Tensor Weights(Backend& backend, const AttentionInput& in) {
    // Every value must be overwritten.
    Tensor weights = Random(in.queries.rows * in.shape.heads, in.keys.rows, 99);
    backend.AttentionWeights(in, weights.mutable_view());
    return weights;
  }
  Tensor Weights(const AttentionInput& in) { return Weights(be(), in); }
};

Matrix NaiveRows(const AttentionInput& in) {  // row i * heads + h
  Matrix rows(in.queries.rows * in.shape.heads);
  for (int h = 0; h < in.shape.heads; ++h) {
    const Matrix a = NaiveWeights(in, h);
    for (size_t i = 0; i < a.size(); ++i) rows[i * in.shape.heads + h] = a[i];
  }
  return rows;
}

TEST_P(WeightsConformance, MatchFp64AndAddUpToOne) {
  for (const AttentionCase& c : Cases()) {
    for (DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c, type);
      AttentionInput in = data.Input();
      in.values = {};  // must not be read
      const Tensor weights = Weights(in);
      const Matrix expected = NaiveRows(in);
      // On a GPU keys of other types are rounded to bf16 as well as queries, and exp multiplies a score's
      // error.
      ExpectClose(weights, expected, GetParam().name == "gpu" ? 2 * tolerance() : tolerance());
      if (HasFatalFailure()) return;
      for (int64_t row = 0; row < weights.rows(); ++row) {
        double sum = 0;
        for (int64_t j = 0; j < weights.cols(); ++j) {
          const float w = weights.view().Row<float>(row)[j];
          if (expected[row][j] == 0) {
            ASSERT_EQ(w, 0.0f) << "row " << row << " key " << j;
          }
          sum += w;
        }
        ASSERT_NEAR(sum, std::accumulate(expected[row].begin(), expected[row].end(), 0.0), 1e-5)
            << "row " << row;
      }
    }
  }
}

TEST_P(WeightsConformance, AQueryIsTheSameInAnyCompanyAndOnAnyThreads) {
  const AttentionData data({.heads = 6, .kv_heads = 2, .head_dim = 80, .n = 300, .m = 67, .hole = 3},
                           be().cache_dtype());
  const AttentionInput in = data.Input();
  const Tensor all = Weights(in);
  for (int count : {1, 2, 3, 6, 33}) {
    for (int first : {0, 5, 30}) {
      AttentionInput some = in;
      some.queries = in.queries.Rows(first, count);
      some.query_positions = in.query_positions.subspan(first, count);
      EXPECT_TRUE(SameBits(Weights(some), all.view().Rows(first * 6, count * 6))) << first << " + " << count;
    }
  }
  for (int threads : {1, 3}) EXPECT_TRUE(SameBits(Weights(*Make(threads), in), all)) << threads;
}

TEST_P(WeightsConformance, LaterKeysChangeNothing) {
  const AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 100, .m = 100},
                           be().cache_dtype());
  const AttentionInput in = data.Input();
  const Tensor all = Weights(in);
  AttentionInput part = in;
  part.queries = in.queries.Rows(0, 50);
  part.query_positions = in.query_positions.first(50);
  part.keys = in.keys.Rows(0, 50);
  part.key_positions = in.key_positions.first(50);
  EXPECT_TRUE(SameBits(Weights(part), all.view().Rows(0, 100).Cols(0, 50)));
}

TEST_P(WeightsConformance, HugeScoresStayAMean) {  // exp overflows fp32 above 88
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 90, .m = 90}, be().cache_dtype());
  data.queries = Random(90, 128, 5, 1e4f);
  const Tensor weights = Weights(data.Input());
  for (int64_t row = 0; row < weights.rows(); ++row) {
    double sum = 0;
    for (float w : weights.view().Row<float>(row)) {
      ASSERT_GE(w, 0.0f);
      sum += w;
    }
    ASSERT_NEAR(sum, 1, 1e-5);
  }
}

TEST_P(WeightsConformance, NoQueriesIsNoWork) {
  const AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 8, .n = 9, .m = 3}, be().cache_dtype());
  AttentionInput in = data.Input();
  in.queries = in.queries.Rows(0, 0);
  in.query_positions = {};
  EXPECT_EQ(Weights(in).rows(), 0);
}

TEST_P(WeightsConformance, WrongShapesFail) {
  const AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 8, .n = 9, .m = 3}, be().cache_dtype());
  Tensor weights(DType::kF32, 6, 9);
  EXPECT_THROW(be().AttentionWeights(data.Input(), weights.mutable_view().Rows(0, 3)), CheckFailure);
  EXPECT_THROW(be().AttentionWeights(data.Input(), weights.mutable_view().Cols(0, 8)), CheckFailure);
  AttentionInput in = data.Input();
  in.query_positions = in.query_positions.first(2);
  EXPECT_THROW(be().AttentionWeights(in, weights.mutable_view()), CheckFailure);
}

// If kv heads hold different rows, the engine calls the operation once per kv head, on that head's columns.
TEST_P(WeightsConformance, OneKvHeadOfManyIsACallOfItsOwn) {
  for (const AttentionCase& c : Cases()) {
    if (c.kv_heads == 1) continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, be().cache_dtype());
    const AttentionInput in = data.Input();
    const int group = c.heads / c.kv_heads;
    Tensor whole(DType::kF32, c.m, in.queries.cols);
    Tensor sliced(DType::kF32, c.m, in.queries.cols);
    be().Attention(in, whole.mutable_view());
    const Tensor weights = Weights(in);
    for (int g = 0; g < c.kv_heads; ++g) {
      const AttentionInput one = HeadOf(in, g);
      be().Attention(one, sliced.mutable_view().Cols(int64_t{g} * group * c.head_dim, one.queries.cols));

      const Tensor own = Weights(one);
      Matrix mass(1, std::vector<double>(one.keys.rows, 0.0));
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t h = 0; h < group; ++h) {
          const TensorView expected = weights.view().Rows(i * c.heads + g * group + h, 1);
          ASSERT_TRUE(SameBits(own.view().Rows(i * group + h, 1), expected));
          for (int64_t j = 0; j < one.keys.rows; ++j) mass[0][j] += expected.Row<float>(0)[j];
        }
      }
      Tensor sums(DType::kF32, 1, one.keys.rows);
      be().AttentionMass(one, {}, MassPool::kSum, sums.mutable_view());
      ExpectClose(sums, mass, tolerance());
      if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(SameBits(sliced, whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WeightsConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
