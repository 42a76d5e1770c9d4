// Matrices of low rank that are near a given one.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace coppice {

// A product out in of rank r.
struct LowRank {
  Tensor out;  // [m, r] fp32: orthonormal columns; some may be 0 if the matrix has a lower rank
  Tensor in;   // [r, n] fp32: rows of descending length, orthogonal to each other
};

// The truncated SVD of w [m, n] fp32: of all matrices of rank r, the nearest one to w. `rank` is at most m
// and n. O(k^2 (m + n) + k^3) for k = min(m, n). `be` should multiply in fp32.
LowRank TruncatedSvd(const TensorView& w, int64_t rank, Backend& be);

}  // namespace coppice
