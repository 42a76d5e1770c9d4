// With A the matrix or its transpose, whichever has fewer rows k: the left singular vectors Q of A are the
// eigenvectors of A A^T [k, k], and the rows of Q^T A are the right ones, times the singular values. Squaring
// the singular values costs half of their digits, which the small ones need; truncation drops those.
#include "eval/tune/low_rank.h"

#include <Eigen/Eigenvalues>
#include <cmath>

#include "base/check.h"

namespace coppice {

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const Matrix> MapOf(const Tensor& t) {
  return {reinterpret_cast<const float*>(t.view().data), t.rows(), t.cols()};
}
Eigen::Map<Matrix> MapOf(Tensor& t) {
  return {reinterpret_cast<float*>(t.mutable_view().data), t.rows(), t.cols()};
}

Tensor Transposed(const TensorView& w) {
  Tensor t(DType::kF32, w.cols, w.rows);
  const MutableTensorView to = t.mutable_view();
  for (int64_t i = 0; i < w.rows; ++i) {
    const std::span<const float> row = w.Row<float>(i);
    for (int64_t j = 0; j < w.cols; ++j)
      to.Row<float>(j)[static_cast<size_t>(i)] = row[static_cast<size_t>(j)];
  }
  return t;
}

// x w^T
Tensor Times(const TensorView& x, const TensorView& w, Backend& be) {
  PackedMatrix packed;
  be.Pack(w, packed);
  Tensor y(DType::kF32, x.rows, w.rows);
  be.Product(x, packed, {}, y.mutable_view());
  return y;
}

// The eigenvectors of the `rank` largest eigenvalues of a symmetric matrix, as rows, the largest first.
Tensor LargestEigenvectors(const Tensor& symmetric, int64_t rank) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(MapOf(symmetric).cast<double>());
  COPPICE_CHECK(solver.info() == Eigen::Success);
  Tensor vectors(DType::kF32, rank, symmetric.rows());
  MapOf(vectors) = solver.eigenvectors().rightCols(rank).rowwise().reverse().transpose().cast<float>();
  return vectors;
}

}  // namespace

LowRank TruncatedSvd(const TensorView& w, int64_t rank, Backend& be) {
  COPPICE_CHECK(w.dtype == DType::kF32 && rank > 0 && rank <= w.rows && rank <= w.cols);
  const Tensor transposed = Transposed(w);
  const bool wide = w.rows <= w.cols;
  const TensorView a = wide ? w : transposed.view();
  const TensorView a_transposed = wide ? transposed.view() : w;
  Tensor q = LargestEigenvectors(Times(a, a, be), rank);  // [r, k]
  Tensor scaled = Times(q.view(), a_transposed, be);      // Q^T A [r, the other side]
  if (wide) return {Transposed(q.view()), std::move(scaled)};
  // A is w^T: the singular values belong to the other factor.
  for (int64_t i = 0; i < rank; ++i) {
    const float value = MapOf(scaled).row(i).norm();
    MapOf(scaled).row(i) *= value > 0 ? 1 / value : 0.0f;
    MapOf(q).row(i) *= value;
  }
  return {Transposed(scaled.view()), std::move(q)};
}

}  // namespace coppice
