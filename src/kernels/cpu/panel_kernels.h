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
// Integers: both sides are int8 codes in groups of PanelKernels::group values along K, each group with an
// fp32 scale:
//
//   y[m][n] = sum over groups g, in order:  fma(float(sum_k xq[m][k] wq[n][k]), ws[n][g] * xs[m][g], y[m][n])
//
// The sums within a group are exact, so every ISA with the same groups gives the same bits. A scale is the
// group's largest magnitude / 127: an outlier costs only its own group precision, not the row. A group has 64
// values where sums stay in registers, and 128 with AMX tiles, which pass their sums through memory once per
// group. On a small model whose weight blocks vary strongly in size, the divergence from fp32 (KL, Q8_0) is
// 2.5e-4 with groups of 64, 5.1e-4 with 128 and 6.7e-3 with 256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice::cpu {

inline constexpr int64_t kVectorGroup = 64;
inline constexpr int64_t kTileGroup = 128;
// Values of a row that are packed at a time; a multiple of every group.
inline constexpr int64_t kPackValues = 256;
inline constexpr int64_t kStripColumns = 16;
// K is zero-padded to a multiple of this, a whole number of AMX tiles.
inline constexpr int64_t kDepthStep = 64;

constexpr int64_t PanelDepth(int64_t inputs) { return (inputs + kDepthStep - 1) / kDepthStep * kDepthStep; }
constexpr int64_t GroupsOf(int64_t inputs, int64_t group) { return (inputs + group - 1) / group; }
constexpr int64_t StripsOf(int64_t outputs) { return (outputs + kStripColumns - 1) / kStripColumns; }

// The product of some rows of x with the strips of one panel.
struct PanelTask {
  const std::byte* x;       // blocks of depth * block_rows values, in the kernel's own order
  const float* x_scales;    // blocks of [groups][block_rows]; integers only
  const int32_t* x_sums;    // blocks of [groups][block_rows], sums of the codes; integers only
  const std::byte* w;       // strips
  const std::byte* next_w;  // the panel that the thread is likely to take next, for prefetching, or null
  const float* w_scales;    // strips of [groups][kStripColumns]; integers only
  const float* bias;        // of the first column, or null
  const float* up_bias;     // the same for the second half of a gated panel
  float* y;                 // at the first row and column
  int64_t y_stride;         // floats
  int64_t depth;            // PanelDepth(inputs)
  int64_t rows;
  int64_t columns;  // of y: at most strips * kStripColumns; half of that if gated
  bool gated;       // the first half of the panel is a gate for the second: y = silu(first) * second
  bool add;         // y += instead of y =
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
  // kDepthStep.
  void (*pack)(const float* w, int rows, int64_t values, std::byte* strip, float* scales);
  // Packs `count` values as row `row` of a block of x, zero-padded to PanelDepth(count).
  void (*prepare)(const float* x, int64_t count, int row, std::byte* block, float* scales, int32_t* sums);
  void (*multiply)(const PanelTask& task);
};

// The CPU must have the instructions (base/cpu_info.h).
const PanelKernels& Avx2IntPanels();
const PanelKernels& AvxVnniPanels();
const PanelKernels& Avx2FloatPanels();
const PanelKernels& Avx512VnniPanels();
const PanelKernels& Avx512Bf16Panels();
const PanelKernels& AmxIntPanels();
const PanelKernels& AmxBf16Panels();

}  // namespace coppice::cpu
