// The kernels of large products over packed panels, as tables of function pointers (see kernel_table.h: intrinsics
// files include this, so it holds plain structs and declarations only).
//
// Weights lie in strips of 16 columns, rows of x in blocks; a panel is a few neighbouring strips, which stay in the L2
// cache while many blocks pass. A strip holds its columns in words of 4 bytes along K, [depth words][16 columns]: what
// vpdpbusd and vdpbf16ps multiply by one broadcast word of x, and sixteen words deep it is a tile of AMX.
//
// Floats: y[m][n] = sum_k x[m][k] w[n][k], sums in fp32 along K; bf16: factors rounded to it.
//
// Integers: both sides are int8 codes in groups of PanelKernels::group values along K, each group with an fp32 scale:
//
//   y[m][n] = sum over groups g, in order:  fma(float(sum_k xq[m][k] wq[n][k]), ws[n][g] * xs[m][g], y[m][n])
//
// The sums within a group are exact, so every ISA with the same groups gives the same bits. A scale is the group's largest
// magnitude / 127: an outlier costs its own group precision, not the row. 64 values share one where sums stay in
// registers, 128 on tiles, which hand their sums over by memory, once a group. On a small model whose weights lie in
// blocks of very different size the divergence from fp32 (KL, Q8_0) is 2.5e-4 with 64, 5.1e-4 with 128, 6.7e-3 with 256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice::cpu {

inline constexpr int64_t kVectorGroup = 64;
inline constexpr int64_t kTileGroup = 128;
inline constexpr int64_t kPackValues = 256;  // of a row, packed at a time: whole groups
inline constexpr int64_t kStripColumns = 16;
inline constexpr int64_t kDepthStep = 64;  // K is padded to it with zeros: a whole number of tiles of AMX

constexpr int64_t PanelDepth(int64_t inputs) { return (inputs + kDepthStep - 1) / kDepthStep * kDepthStep; }
constexpr int64_t GroupsOf(int64_t inputs, int64_t group) { return (inputs + group - 1) / group; }
constexpr int64_t StripsOf(int64_t outputs) { return (outputs + kStripColumns - 1) / kStripColumns; }

// Rows of x against the strips of one panel.
struct PanelTask {
  const std::byte* x;       // blocks of depth * block_rows values, in the kernel's own order
  const float* x_scales;    // blocks of [groups][block_rows]; integers only
  const int32_t* x_sums;    // blocks of [groups][block_rows], of the codes; integers only
  const std::byte* w;       // strips
  const std::byte* next_w;  // of the whole panel that the thread is likely to take next, or null
  const float* w_scales;    // strips of [groups][kStripColumns]; integers only
  const float* bias;        // of the first column, or null
  const float* up_bias;     // the same for the second half of a gated panel
  float* y;                 // first row, first column
  int64_t y_stride;         // floats
  int64_t depth;            // PanelDepth(inputs)
  int64_t rows;
  int64_t columns;  // of y: at most strips * kStripColumns, and half of that where gated
  bool gated;  // the panel's first half is a gate, its second half what it gates: y = silu(first) * second
  bool add;    // y += instead of y =
};

struct PanelKernels {
  int value_bytes;      // of packed values
  bool scaled;          // integers, with scales
  int64_t group;        // values that share a scale; divides kPackValues
  int block_rows;       // rows of one block of x
  int strips;           // of a panel
  int64_t x_bytes = 0;  // of packed x that stay in the cache while panels pass; 0: panels stay, rows pass
  // At most kStripColumns rows of weights, kPackValues floats apart, become kPackValues (or, at the end, fewer) values of
  // a strip, and their groups' scales [groups][kStripColumns]. `values` is a multiple of kDepthStep.
  void (*pack)(const float* w, int rows, int64_t values, std::byte* strip, float* scales);
  // `count` values become row `row` of a block of x; values up to PanelDepth(count) are 0.
  void (*prepare)(const float* x, int64_t count, int row, std::byte* block, float* scales, int32_t* sums);
  void (*multiply)(const PanelTask& task);
};

// For callers that know that the CPU has the instructions (base/cpu_info.h).
const PanelKernels& Avx2IntPanels();
const PanelKernels& AvxVnniPanels();
const PanelKernels& Avx2FloatPanels();
const PanelKernels& Avx512VnniPanels();
const PanelKernels& Avx512Bf16Panels();
const PanelKernels& AmxIntPanels();
const PanelKernels& AmxBf16Panels();

}  // namespace coppice::cpu
