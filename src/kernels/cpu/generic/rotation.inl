// Rotation of rows by Hadamard matrices, over any vector type; panel_kernels.h says what for. Included after
// V into the namespace of the ISA's file.

// A size as a type. The files of kernels include no header of the standard library.
template <int64_t kValue>
struct Int {
  constexpr operator int64_t() const { return kValue; }
};

// The signs S of panel_kernels.h.
struct Signs {
  alignas(64) float of[kFastGroup];
  constexpr Signs() : of() {
    for (unsigned i = 0; i < kFastGroup; ++i) of[i] = __builtin_parity(i & (i >> 1) & 0x55) ? -1.0f : 1.0f;
  }
};
inline constexpr Signs kSigns;

// y = H S x for `kSize` values, without the factor 1 / sqrt(kSize); y may be x. Each stage replaces values a
// and b, `stride` apart, by a + b and a - b, from the widest stride to 1. That order is part of the
// arithmetic: with it every ISA rounds alike.
template <int64_t kSize>
inline void RotateBlock(const float* x, float* y) {
  for (int64_t stride = kSize / 2; stride >= V::kLanes; stride /= 2) {
    const float* from = stride == kSize / 2 ? x : y;
    for (int64_t i = 0; i < kSize; i += 2 * stride) {
      for (int64_t j = i; j < i + stride; j += V::kLanes) {
        V a = V::Load(from + j);
        V b = V::Load(from + j + stride);
        if (kSize > kVectorGroup && stride == kSize / 2) {
          a = a * V::Load(kSigns.of + j);
          b = b * V::Load(kSigns.of + j + stride);
        }
        (a + b).Store(y + j);
        (a - b).Store(y + j + stride);
      }
    }
  }
  for (int64_t i = 0; i < kSize; i += V::kLanes) V::Load(y + i).AddAndSubtractLanes().Store(y + i);
}

// Rotates `count` values, a multiple of kDepthStep, in blocks of kGroup; a remainder in the largest powers of
// two that fit.
template <int64_t kGroup>
inline void Rotate(const float* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) RotateBlock<kGroup>(x + i, y + i);
  if constexpr (kGroup > kDepthStep) Rotate<kGroup / 2>(x + i, count - i, y + i);
}

// The inverse of Rotate, in place, which makes the product of rotated rows that of the rows.
template <int64_t kGroup>
void RotateBack(float* x, int64_t count) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    RotateBlock<kGroup>(x + i, x + i);
    const V factor = V::Set(1.0f / static_cast<float>(kGroup));
    for (int64_t j = i; j < i + kGroup; j += V::kLanes) (V::Load(x + j) * factor).Store(x + j);
  }
  if constexpr (kGroup > kDepthStep) RotateBack<kGroup / 2>(x + i, count - i);
}

// 1 / sqrt(size) makes the rotation of a block orthogonal.
template <int64_t kSize>
inline void RotateHeadBlock(float factor, float* x) {
  RotateBlock<kSize>(x, x);
  for (int64_t c = 0; c < kSize; c += V::kLanes) (V::Load(x + c) * V::Set(factor)).Store(x + c);
}

// Calls rotate(size, factor, first channel) for the blocks of a head of `dim` channels, a multiple of 32:
// powers of two, given as types.
template <typename F>
inline void RotateBlocks(int64_t dim, F rotate) {
  int64_t c = 0;
  for (; c + 128 <= dim; c += 128) rotate(Int<128>{}, 0.088388348f, c);
  for (; c + 64 <= dim; c += 64) rotate(Int<64>{}, 0.125f, c);
  for (; c < dim; c += 32) rotate(Int<32>{}, 0.17677670f, c);
}

// x = R x for a head.
inline void RotateHead(float* x, int64_t dim) {
  RotateBlocks(dim, [x](auto size, float factor, int64_t c) { RotateHeadBlock<size>(factor, x + c); });
}
