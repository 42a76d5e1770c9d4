// What the panel products of every ISA share, in plain C++: scales of codes, where values lie in blocks of x, and a task's
// blocks. Included into a namespace of the ISA's own file, as kernels.inl is.

// Scale and its inverse. Values that are not finite make the scale, and so every result they enter, a NaN.
struct IntScale {
  float scale;
  float inverse;
};

inline IntScale ScaleOf(uint32_t magnitude) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (magnitude >= kInfinity) return {__builtin_nanf(""), 0.0f};
  float largest;
  __builtin_memcpy(&largest, &magnitude, sizeof largest);
  // Below this the inverse would overflow: such a group is zero beside anything else.
  if (largest < 1e-30f) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

// Where word i of row `row` of a block lies. Dot products broadcast words of neighbouring rows one after the other;
// tiles are loaded by row.
template <int kRows, bool kByRow>
inline int64_t WordOffset(int64_t row, int64_t i, int64_t depth_words) {
  return kByRow ? row * depth_words + i : i * kRows + row;
}

// Up to kPackValues values with zeros behind them, up to a multiple of kDepthStep.
inline const float* PadValues(const float* x, int64_t count, float* padded) {
  const int64_t depth = PanelDepth(count);
  if (count == depth) return x;
  __builtin_memcpy(padded, x, static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = count; i < depth; ++i) padded[i] = 0.0f;
  return padded;
}

// The words of one group of row `row`, from word `first` of the block on.
template <int kRows, bool kByRow>
inline void PlaceWords(const std::byte* words, int64_t count, int row, int64_t first, int64_t depth_words,
                       std::byte* block) {
  if constexpr (kByRow) {
    __builtin_memcpy(block + WordOffset<kRows, kByRow>(row, first, depth_words) * 4, words,
                     static_cast<size_t>(count) * 4);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      __builtin_memcpy(block + WordOffset<kRows, kByRow>(row, first + i, depth_words) * 4, words + i * 4, 4);
    }
  }
}

// Block `index` of a task's rows.
struct PanelBlock {
  const PanelTask& task;
  const std::byte* x;
  const float* x_scales;  // [groups][block rows]
  const int32_t* x_sums;
  int64_t groups;
  int64_t first_row;
};

inline PanelBlock BlockOf(const PanelTask& t, int64_t index, int64_t block_rows, int64_t value_bytes,
                          int64_t group) {
  const int64_t groups = GroupsOf(t.depth, group);
  const int64_t scales = t.x_scales != nullptr ? index * groups * block_rows : 0;
  return {t,
          t.x + index * t.depth * block_rows * value_bytes,
          t.x_scales + scales,
          t.x_sums + scales,
          groups,
          index * block_rows};
}
