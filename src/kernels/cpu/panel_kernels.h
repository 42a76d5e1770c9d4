// The kernels of large products over packed panels, as tables of function pointers. Intrinsics files include
// this header, so it holds only plain structs and declarations (see kernel_table.h).
//
// Weights are stored in strips of 16 columns, rows of x in blocks. A panel is a few neighbouring strips,
// which stay in the L2 cache while many blocks pass. A strip holds its columns in 4-byte words along K,
// [depth words][16 columns]. vpdpbusd and vdpbf16ps multiply 16 such words by one broadcast word of x, and
// sixteen rows of words are a tile of AMX.
//
// Floats: y[m][n] = sum_k x[m][k] w[n][k], summed in fp32 along K. For bf16, the factors are rounded to bf16.
//
// Integers: both sides are rotated, x' = H S x and w' = H S w / n, by Hadamard matrices H of n x n along K,
// which changes no product (H H = n, S S = 1) and spreads an outlier over its group (QuaRot, arXiv
// 2404.00456, does the same to whole layers). S holds signs. H alone would gather a group's mean in one
// value, which sets the scale if the group is large. With the signs of a bent function,
// (-1)^(i0 i1 + i2 i3 + i4 i5 + i6 i7) for the bits of index i, H S spreads a mean evenly. In groups of 32
// values S is 1.
//
// Then both sides become int8 codes in groups of PanelKernels::group values along K, each group with an fp32
// scale:
//
//   y[m][n] = sum over groups g, in order:  fma(xs[m][g] * sum_k xq[m][k] wq[n][k], ws[n][g], y[m][n])
//
// n is the size of a group; the last group may be shorter, and is rotated in the largest powers of two that
// fit. The sums within a group are exact, so every ISA with the same groups gives the same bits. A scale is
// the group's largest magnitude / 127, with two exceptions. Scales of x lack their last two bits, see below.
// And where a group is a stored block of weights, the rotated block is again integers times the block's step
// d (but for its first value in formats with a minimum, which is rounded). If they fit into a byte, d / n is
// the scale, and rounding loses nothing. Nearly all blocks of 4-bit formats fit: of 32 codes of 4 bits the
// sums with signs have a deviation of 26.
//
// A sum s needs no conversion to fp32. It starts at the bits of C = 1.5 * 2^23, so that its bits are the
// float C + s, because |s| <= 256 * 127 * 128 < 2^22; and xs s = fma(C + s, xs, -C xs), rounded once, because
// C xs is exact if xs lacks two bits. A group of x that reaches 2^111 counts as not finite, because C xs
// would not be. A group of 32 so takes 8 vpdpbusd and two FMA on the same ports: at most 80 % of the peak,
// instead of 73 % with a conversion on these ports and a product of the two scales. Sums in AMX tiles start
// at 0 and are converted, with the same rounding.
//
// AVX2 has an arithmetic of its own for stored codes of 4 bits: avx2/panel_nibbles.inl.
//
// The divergence from fp32 (KL in nats, SmolLM2-135M-Instruct in Q4_1, 1,024 tokens) is 0.0006 with groups of
// 32, 0.0027 with 128, and 0.0031 with 256; without rotation it is 0.0063 with groups of 64. AMX tiles pass
// their sums through memory once per group, so theirs have 128 values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"

namespace coppice::cpu {

inline constexpr int64_t kVectorGroup = 32;
inline constexpr int64_t kFastGroup = 256;  // BackendOptions::fast
inline constexpr int64_t kTileGroup = 128;
// Values that share a step in WeightRows::Steps.
inline constexpr int64_t kStepValues = 32;
// Values of a row that are packed at a time; a multiple of every group.
inline constexpr int64_t kPackValues = 256;
inline constexpr int64_t kStripColumns = 16;
// K is zero-padded to a multiple of this, a whole number of AMX tiles.
inline constexpr int64_t kDepthStep = 64;

constexpr int64_t PanelDepth(int64_t inputs) { return (inputs + kDepthStep - 1) / kDepthStep * kDepthStep; }
constexpr int64_t GroupsOf(int64_t inputs, int64_t group) { return (inputs + group - 1) / group; }
constexpr int64_t StripsOf(int64_t outputs) { return (outputs + kStripColumns - 1) / kStripColumns; }

// C of the comment above, and its bits.
inline constexpr float kSumBase = 12582912.0f;
inline constexpr int32_t kSumBaseBits = 0x4b400000;

// The product of some rows of x with the strips of one panel.
struct PanelTask {
  const std::byte* x;     // blocks of depth * block_rows values, in the kernel's own order
  const float* x_scales;  // blocks of [groups][block_rows], as the next two; integers only
  const float* x_offsets;
  const int32_t* x_starts;
  const float* x_sums;      // PanelKernels::shifted alone
  const std::byte* w;       // strips
  const std::byte* next_w;  // the panel that the thread is likely to take next, for prefetching, or null
  // Strips of [groups][kStripColumns], or of [groups][2][kStripColumns]: scales, then shifts; integers only.
  const float* w_scales;
  const float* bias;     // of the first column, or null
  const float* up_bias;  // the same for the second half of a gated panel
  float* y;              // at the first row and column
  int64_t y_stride;      // floats
  int64_t depth;         // PanelDepth(inputs)
  int64_t rows;
  int64_t columns;        // of y: at most strips * kStripColumns; half of that if gated
  bool gated;             // the first half of the panel is a gate for the second
  Activation activation;  // of a gated panel
  bool add;               // y += instead of y =
};

// Does what PanelKernels::pack does, for `count` rows of `values` stored values, whole blocks of one format.
using PackStored = void (*)(const std::byte* const* rows, int count, int64_t values, std::byte* strip,
                            float* scales);

// What a block of x has beside its codes, [groups][block_rows] each. AMX uses the scales alone.
struct BlockScales {
  float* scales;
  float* offsets;  // -C * scale: computed by the kernels, it would take the ports of their products
  // What sums start at: C's bits, less 128 times the sum of the codes for weights stored as code + 128.
  int32_t* starts;
  float* sums;  // of the values themselves; PanelKernels::shifted alone
};

struct PanelKernels {
  int value_bytes;  // per packed value
  bool scaled;      // integers with scales
  int64_t group;    // values per scale; divides kPackValues
  int block_rows;   // rows of x per block
  int strips;       // per panel
  // Size of packed x to keep in the cache while panels pass; 0: keep a panel while rows pass.
  int64_t x_bytes = 0;
  // Packs at most kStripColumns rows of weights, kPackValues floats apart, into `values` values of a strip
  // and the scales [groups][kStripColumns] of their groups. `values` is at most kPackValues and a multiple of
  // kDepthStep. `steps` [groups][kStripColumns]: each group's step as stored; null, or 0, if unknown.
  // Overwrites w. Null: the kernels take the stored blocks below, and nothing else.
  void (*pack)(float* w, int rows, int64_t values, const float* steps, std::byte* strip, float* scales);
  // Packs `count` values as row `row` of a block of x, zero-padded to PanelDepth(count).
  void (*prepare)(const float* x, int64_t count, int row, std::byte* block, const BlockScales& scales);
  void (*multiply)(const PanelTask& task);
  // Weights have a shift beside each scale: BlockScales::sums, PanelTask::w_scales.
  bool shifted = false;
  // For rows of Q4_0, Q4_1 and Q4_K. Null: they are dequantised first, as rows of other types are.
  PackStored pack_q4_0 = nullptr;
  PackStored pack_q4_1 = nullptr;
  PackStored pack_q4_k = nullptr;
};

// The CPU must have the instructions (base/cpu_info.h). `fast`: groups of kFastGroup.
const PanelKernels& Avx2IntPanels(bool fast);
const PanelKernels& AvxVnniPanels(bool fast);
// Stored codes of 4 bits, of one type in all rows: Q4_0, or, `shifted`, Q4_1 or Q4_K.
const PanelKernels& Avx2NibblePanels(bool shifted);
const PanelKernels& Avx2FloatPanels();
const PanelKernels& Avx512VnniPanels(bool fast);
const PanelKernels& Avx512Bf16Panels();
const PanelKernels& Avx512FloatPanels();
const PanelKernels& AmxIntPanels();
const PanelKernels& AmxBf16Panels();

}  // namespace coppice::cpu
