// The table of the integer products. Included after int_dot.inl and what chooses kernels by the number of
// rows of x: TakesColumns, which multiplies by several rows if it returns true; kTakesPairs, whether two rows
// are faster together; WalkOf, the walk for one row or two.

// Whether the walk itself prefetches.
template <typename Walk>
constexpr bool kPrefetches = false;
template <typename Format>
constexpr bool kPrefetches<Blocks<Format>> = Format::kAhead > 0;

// One row of weights at a time, so that they are a single stream, which the hardware prefetcher follows best,
// and the sums stay in registers. kRows rows of x share the unpacked codes.
template <typename Walk, int kRows>
inline void IntDotRows(const IntDotTask& t, int64_t i) {
  for (int64_t row = 0; row < t.rows; ++row) {
    const float bias = t.bias == nullptr ? 0.0f : t.bias[row];
    const std::byte* w = t.w + row * t.w_stride;
    if (!kPrefetches<Walk> && t.ahead > 0) {
      constexpr int64_t kCacheLine = 64;
      for (int64_t b = 0; b < t.w_stride; b += kCacheLine) __builtin_prefetch(w + t.ahead + b, 0, 2);
    }
    __m256 sums[kRows];
    WalkOf<Walk, kRows>::Type::template Dot<kRows>(w, t.x + i, t.x_rows, t.count, sums);
    for (int r = 0; r < kRows; ++r) t.y[(i + r) * t.y_stride + row] = SumOf(sums[r]) + bias;
  }
}

template <typename Walk>
void IntDot(const IntDotTask& t) {
  if (TakesColumns<Walk>(t)) return;
  // Two rows of x pass all rows of the task's weights, which the L2 cache holds, before the next ones do:
  // rows of x that stay in L1 cost less than weights that do.
  int64_t i = 0;
  if constexpr (kTakesPairs<Walk>) {
    for (; i + 2 <= t.x_rows; i += 2) IntDotRows<Walk, 2>(t, i);
  }
  for (; i < t.x_rows; ++i) IntDotRows<Walk, 1>(t, i);
}

constexpr IntDotKernels kIntDots = {
    .quantize = QuantizeDotRow,
    // clang-format off
    .layout = {DotLayout::kSuper, DotLayout::kSuper, DotLayout::kSuper, DotQ4_0::kLayout, DotQ4_1::kLayout,
               DotQ5_0::kLayout, DotQ5_1::kLayout, DotQ8_0::kLayout, DotLayout::kSuper, DotLayout::kSuper,
               DotLayout::kSuper, DotLayout::kSuper, DotLayout::kSuper, DotIQ4_NL::kLayout, DotMXFP4::kLayout,
               DotIQ4_XS::kLayout, DotLayout::kSuper, DotLayout::kSuper, DotLayout::kSuper, DotLayout::kSuper,
               DotLayout::kSuper},
    .dot = {nullptr, nullptr, nullptr, IntDot<Blocks<DotQ4_0>>, IntDot<Blocks<DotQ4_1>>,
            IntDot<Blocks<DotQ5_0>>, IntDot<Blocks<DotQ5_1>>, IntDot<Blocks<DotQ8_0>>,
            IntDot<SuperBlocks<DotQ2_K>>, IntDot<SuperBlocks<DotQ3_K>>, IntDot<SuperBlocks<DotQ4_K>>,
            IntDot<SuperBlocks<DotQ5_K>>, IntDot<SuperBlocks<DotQ6_K>>, IntDot<Blocks<DotIQ4_NL>>,
            IntDot<Blocks<DotMXFP4>>, IntDot<Blocks<DotIQ4_XS>>, IntDot<SuperBlocks<DotIQ2_XXS>>,
            IntDot<SuperBlocks<DotIQ2_XS>>, IntDot<SuperBlocks<DotIQ2_S>>, IntDot<SuperBlocks<DotIQ3_XXS>>,
            IntDot<SuperBlocks<DotIQ3_S>>},
    // clang-format on
};
