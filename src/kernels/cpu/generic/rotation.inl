// Rotation of rows by Hadamard matrices, over any vector type; panel_kernels.h says what for. Included after V
// into the namespace of the ISA's file.

// x = H x for `kSize` values, without the factor 1 / sqrt(kSize). Each stage replaces values a and b, `stride`
// apart, by a + b and a - b, from the widest stride to 1. That order is part of the arithmetic: with it every
// ISA rounds alike.
template <int64_t kSize>
inline void RotateBlock(float* x) {
  for (int64_t stride = kSize / 2; stride >= V::kLanes; stride /= 2) {
    for (int64_t i = 0; i < kSize; i += 2 * stride) {
      for (int64_t j = i; j < i + stride; j += V::kLanes) {
        const V a = V::Load(x + j);
        const V b = V::Load(x + j + stride);
        (a + b).Store(x + j);
        (a - b).Store(x + j + stride);
      }
    }
  }
  for (int64_t i = 0; i < kSize; i += V::kLanes) V::Load(x + i).AddAndSubtractLanes().Store(x + i);
}

// Rotates `count` values, a multiple of kDepthStep, in blocks of kGroup; a remainder in the largest powers of
// two that fit.
template <int64_t kGroup>
inline void Rotate(float* x, int64_t count) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) RotateBlock<kGroup>(x + i);
  if constexpr (kGroup > kDepthStep) Rotate<kGroup / 2>(x + i, count - i);
}

// The inverse of Rotate, which makes the product of rotated rows that of the rows.
template <int64_t kGroup>
void RotateBack(float* x, int64_t count) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    RotateBlock<kGroup>(x + i);
    const V factor = V::Set(1.0f / static_cast<float>(kGroup));
    for (int64_t j = i; j < i + kGroup; j += V::kLanes) (V::Load(x + j) * factor).Store(x + j);
  }
  if constexpr (kGroup > kDepthStep) RotateBack<kGroup / 2>(x + i, count - i);
}
