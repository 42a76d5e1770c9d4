// The dot product of the reference backend.
#pragma once

#include <cstdint>

namespace coppice::reference {

// sum_k a[k] b[k] in fp32. Element k goes to partial sum k % 16, and a tree adds the partial sums, so the
// order depends on n alone. Every product of the backend uses this function, so prefill and decode agree bit
// for bit, and the rounding error grows with n / 16 instead of n.
float Dot(const float* a, const float* b, int64_t n);

}  // namespace coppice::reference
