// The table of the integer products. Included after int_dot.inl and WalkOf, which chooses the walk for a
// number of rows.

// One row of weights at a time, so that they are a single stream, which the hardware prefetcher follows best,
// and the sums stay in registers. kRows rows of x share the unpacked codes.
template <typename Walk, int kRows>
inline void IntDotRows(const IntDotTask& t, int64_t i) {
  for (int64_t row = 0; row < t.rows; ++row) {
    const float bias = t.bias == nullptr ? 0.0f : t.bias[row];
    __m256 sums[kRows];
    WalkOf<Walk, kRows>::Type::template Dot<kRows>(t.w + row * t.w_stride, t.x + i, t.x_rows, t.count, sums);
    for (int r = 0; r < kRows; ++r) t.y[(i + r) * t.y_stride + row] = SumOf(sums[r]) + bias;
  }
}

// Some rows of x pass all rows of the task's weights, which the L2 cache holds, before the next ones do: rows
// of x that stay in L1 cost less than weights that do.
template <typename Walk>
void IntDot(const IntDotTask& t) {
  constexpr int64_t kStaying = 28 << 10;  // bytes of x; L1 holds 32 KiB or more
  const int64_t row_bytes = DotGroups(t.count) * static_cast<int64_t>(sizeof(DotGroup));
  if (TakesColumns<Walk>(t)) return;
  int64_t i = 0;
  if constexpr (kDotRows<Walk> >= 8) {
    if (8 * row_bytes <= kStaying) {
      for (; i + 8 <= t.x_rows; i += 8) IntDotRows<Walk, 8>(t, i);
    }
  }
  if constexpr (kDotRows<Walk> >= 4) {
    for (; i + 4 <= t.x_rows; i += 4) IntDotRows<Walk, 4>(t, i);
  }
  if constexpr (kDotRows<Walk> >= 2) {
    for (; i + 2 <= t.x_rows; i += 2) IntDotRows<Walk, 2>(t, i);
  }
  for (; i < t.x_rows; ++i) IntDotRows<Walk, 1>(t, i);
}

constexpr IntDotKernels kIntDots = {
    .quantize = QuantizeDotRow,
    .layout = {DotLayout::kSuper, DotLayout::kSuper, DotLayout::kSuper, DotQ4_0::kLayout, DotQ4_1::kLayout,
               DotQ5_0::kLayout, DotQ5_1::kLayout, DotQ8_0::kLayout},
    .dot = {nullptr, nullptr, nullptr, IntDot<Blocks<DotQ4_0>>, IntDot<Blocks<DotQ4_1>>,
            IntDot<Blocks<DotQ5_0>>, IntDot<Blocks<DotQ5_1>>, IntDot<Blocks<DotQ8_0>>,
            IntDot<SuperBlocks<DotQ2_K>>, IntDot<SuperBlocks<DotQ3_K>>, IntDot<SuperBlocks<DotQ4_K>>,
            IntDot<SuperBlocks<DotQ5_K>>, IntDot<SuperBlocks<DotQ6_K>>},
};
