// Shared by the panel products of every ISA, in plain C++: scales of codes, the order of values in blocks of
// x, and the blocks of a task. Included into the namespace of the ISA's file, like kernels.inl.

// A scale and its inverse. Values that are not finite make the scale NaN, and so every result that they
// enter.
struct IntScale {
  float scale;
  float inverse;
};

inline IntScale ScaleOf(uint32_t magnitude) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (magnitude >= kInfinity) return {__builtin_nanf(""), 0.0f};
  float largest;
  __builtin_memcpy(&largest, &magnitude, sizeof largest);
  // Below this the inverse would overflow; such a group is negligible and becomes zero.
  if (largest < 1e-30f) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

// The scale of a group of x, without the last two bits. A group that reaches 2^111 counts as not finite: C
// times its scale would overflow.
inline IntScale ShortScaleOf(uint32_t magnitude) {
  constexpr uint32_t kMost = 0x77000000;  // 2^111
  IntScale s = ScaleOf(magnitude < kMost ? magnitude : 0x7f800000);
  uint32_t bits;
  __builtin_memcpy(&bits, &s.scale, sizeof bits);
  bits &= ~3u;
  __builtin_memcpy(&s.scale, &bits, sizeof bits);
  return s;
}

// Writes what belongs to group `at` of a block, whose sums start at C + `start`.
inline void PlaceScale(const BlockScales& to, int64_t at, float scale, int32_t start) {
  to.scales[at] = scale;
  to.offsets[at] = -kSumBase * scale;
  to.starts[at] = kSumBaseBits + start;
}

// The scale of a group of weights: the stored codes' `step` if the group's values are such steps and at most
// 127 of them, else that of its magnitude. 127.4 leaves room for the rounding of the sums.
inline IntScale ScaleOfWeights(uint32_t magnitude, float step) {
  const IntScale s = ScaleOf(magnitude);
  float largest;
  __builtin_memcpy(&largest, &magnitude, sizeof largest);
  const float size = __builtin_fabsf(step);
  return s.inverse != 0.0f && size >= 1e-30f && largest <= 127.4f * size ? IntScale{step, 1.0f / step} : s;
}

// The order of a block's words. Dot products broadcast words of neighbouring rows one after another, so
// kWords interleaves rows. kTiles stores tiles of 16 rows of 16 words, each 1 KiB without gaps, tiles of the
// same 16 rows consecutively: rows that are a power of two of bytes apart would share few sets of the L1
// cache (64 rows of 2048 codes would use 8 of 64 sets, which hold 96 of the 256 lines that all strips read).
enum class BlockOrder { kWords, kTiles };

// The index of word i of row `row` in a block.
template <int kRows, BlockOrder kOrder>
inline int64_t WordOffset(int64_t row, int64_t i, int64_t depth_words) {
  if constexpr (kOrder == BlockOrder::kWords) return i * kRows + row;
  return row / 16 * 16 * depth_words + i / 16 * 256 + row % 16 * 16 + i % 16;
}

// Copies `count` values, none if it is negative, and pads them with zeros to `depth`.
inline void PadValues(const float* x, int64_t count, int64_t depth, float* padded) {
  const int64_t there = count < 0 ? 0 : count < depth ? count : depth;
  __builtin_memcpy(padded, x, static_cast<size_t>(there) * sizeof(float));
  for (int64_t i = there; i < depth; ++i) padded[i] = 0.0f;
}

// Stores `count` words of row `row` at word `first` of the block; for kTiles `count` is a multiple of 16.
template <int kRows, BlockOrder kOrder>
inline void PlaceWords(const std::byte* words, int64_t count, int row, int64_t first, int64_t depth_words,
                       std::byte* block) {
  constexpr int64_t kStep = kOrder == BlockOrder::kTiles ? 16 : 1;
  for (int64_t i = 0; i < count; i += kStep) {
    __builtin_memcpy(block + WordOffset<kRows, kOrder>(row, first + i, depth_words) * 4, words + i * 4,
                     kStep * 4);
  }
}

// One block of a task's rows.
struct PanelBlock {
  const PanelTask& task;
  const std::byte* x;
  const float* x_scales;  // [groups][block rows], as the next two
  const float* x_offsets;
  const int32_t* x_starts;
  const float* x_sums;  // shifted kernels alone
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
          t.x_offsets + scales,
          t.x_starts + scales,
          t.x_sums == nullptr ? nullptr : t.x_sums + scales,
          groups,
          index * block_rows};
}
