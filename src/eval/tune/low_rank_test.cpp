#include "eval/tune/low_rank.h"

#include <gtest/gtest.h>

#include <Eigen/SVD>

#include "base/random.h"

namespace coppice::low_rank_test {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix Of(const Tensor& t) {
  return Eigen::Map<const Matrix>(reinterpret_cast<const float*>(t.view().data), t.rows(), t.cols());
}

// With singular values that fall slowly, as those of weights do.
Matrix Irregular(int64_t m, int64_t n, uint64_t seed) {
  Random random(seed);
  Matrix w(m, n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      w(i, j) = static_cast<float>((random.Uniform() - 0.5) * std::exp(-0.1 * static_cast<double>(i + j)));
  return w;
}

LowRank Svd(const Matrix& w, int64_t rank) {
  const auto be = MakeBackend("cpu", {.threads = 1, .exact = true});
  return TruncatedSvd(TensorView(w.data(), DType::kF32, w.rows(), w.cols()), rank, *be);
}

TEST(LowRank, NoMatrixOfItsRankIsNearer) {
  for (const auto& [m, n] : {std::pair{40, 24}, std::pair{24, 40}, std::pair{32, 32}}) {
    const Matrix w = Irregular(m, n, 7);
    const Eigen::VectorXf values = Eigen::JacobiSVD<Matrix>(w).singularValues();
    for (const int rank : {1, 5, 24}) {
      const LowRank low = Svd(w, rank);
      ASSERT_EQ(low.out.rows(), m);
      ASSERT_EQ(low.in.rows(), rank);
      ASSERT_EQ(low.in.cols(), n);
      // Eckart and Young: the error is what the other singular values hold.
      EXPECT_NEAR((w - Of(low.out) * Of(low.in)).norm(), values.tail(values.size() - rank).norm(),
                  1e-5f * values.norm());
      for (int i = 0; i < rank && values[i] > 1e-3f * values[0]; ++i)
        EXPECT_NEAR(Of(low.in).row(i).norm(), values[i], 1e-4f * values[0]);
    }
  }
}

TEST(LowRank, TheOutsColumnsAreOrthonormal) {
  for (const auto& [m, n] : {std::pair{40, 24}, std::pair{24, 40}}) {
    const Matrix out = Of(Svd(Irregular(m, n, 8), 6).out);
    EXPECT_LT((out.transpose() * out - Matrix::Identity(6, 6)).norm(), 1e-4f);
  }
}

TEST(LowRank, AMatrixWithoutTheRank) {
  for (const auto& [m, n] : {std::pair{40, 24}, std::pair{24, 40}}) {
    const Matrix one = Matrix::Ones(m, n);
    const LowRank low = Svd(one, 3);
    EXPECT_LT((one - Of(low.out) * Of(low.in)).norm(), 1e-4f);
    const LowRank none = Svd(Matrix::Zero(m, n), 3);
    EXPECT_EQ((Of(none.out) * Of(none.in)).norm(), 0);
  }
}

}  // namespace
}  // namespace coppice::low_rank_test
