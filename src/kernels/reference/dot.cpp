#include "kernels/reference/dot.h"

namespace coppice::reference {

float Dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 16;
  float sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[k + lane] * b[k + lane];
  }
  for (int lane = 0; k < n; ++k, ++lane) sums[lane] += a[k] * b[k];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

}  // namespace coppice::reference
