// The one sum over K of the reference backend.
#pragma once

#include <cstdint>

namespace coppice::reference {

// sum_k a[k] b[k] in fp32. Element k goes to partial sum k % 16, and the partial sums are added as a tree: an
// order that depends on n alone. Every product of the backend sums here, so that prefill and decode agree bit
// for bit. Sixteen partial sums because the compiler can keep them in vector registers without reordering
// anything, and because their rounding error grows with n / 16 where one running sum's grows with n.
float Dot(const float* a, const float* b, int64_t n);

}  // namespace coppice::reference
