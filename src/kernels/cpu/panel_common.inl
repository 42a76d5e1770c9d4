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

// The order of a block's words. Dot products broadcast those of neighbouring rows one after the other. Tiles are 16 rows of
// 16 words, each in one piece of 1 KiB, those of the same 16 rows one behind the other: rows a power of two of bytes apart
// share few sets of the L1 cache (64 rows of 2048 codes: 8 of 64, which hold 96 of the 256 lines that all strips read).
enum class BlockOrder { kWords, kTiles };

// Where word i of row `row` of a block lies.
template <int kRows, BlockOrder kOrder>
inline int64_t WordOffset(int64_t row, int64_t i, int64_t depth_words) {
  if constexpr (kOrder == BlockOrder::kWords) return i * kRows + row;
  return row / 16 * 16 * depth_words + i / 16 * 256 + row % 16 * 16 + i % 16;
}

// Up to kPackValues values with zeros behind them, up to a multiple of kDepthStep.
inline const float* PadValues(const float* x, int64_t count, float* padded) {
  const int64_t depth = PanelDepth(count);
  if (count == depth) return x;
  __builtin_memcpy(padded, x, static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = count; i < depth; ++i) padded[i] = 0.0f;
  return padded;
}

// The words of one group of row `row`, from word `first` of the block on. Tiles take multiples of 16.
template <int kRows, BlockOrder kOrder>
inline void PlaceWords(const std::byte* words, int64_t count, int row, int64_t first, int64_t depth_words,
                       std::byte* block) {
  constexpr int64_t kStep = kOrder == BlockOrder::kTiles ? 16 : 1;
  for (int64_t i = 0; i < count; i += kStep) {
    __builtin_memcpy(block + WordOffset<kRows, kOrder>(row, first + i, depth_words) * 4, words + i * 4,
                     kStep * 4);
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
