// Integer matrix-vector products of quantised weights, as a table of function pointers. Intrinsics files
// include this header, so it holds only plain structs and declarations (see kernel_table.h).
//
// Weights keep their stored codes. x becomes int8 codes with one fp32 scale per block of 32 or super-block of
// 256 values, whichever shares a scale in the weights; the scale is the largest magnitude / 127. Sums of
// codes are exact within a block of weights. fp32 adds up the blocks, in an order that depends only on the
// row's length: blocks whose number leaves the same remainder by eight have a sum of their own, and the eight
// sums are added up in a fixed tree (generic/int_dot_blocks.inl). So a product has the same bits on every ISA
// with these kernels, whatever other rows of weights or of x the call has, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {

inline constexpr int64_t kDotGroup = 256;  // a super-block of the K formats; 8 blocks of the other formats
inline constexpr int64_t kDotBlock = 32;   // rows consist of whole blocks

// The layout of x's codes that a type of weights requires.
enum class DotLayout : uint8_t {
  kSuper,  // one scale; codes in order
  // The others: one scale per block; for i = 0 to 3, the first halves of blocks i and i + 4, then their last
  // halves. They differ in what they say about the sum of a block's codes.
  kSums,    // the sum, as a float
  kLess8,   // -8 times the sum: what makes up for codes of w that are 8 too large
  kLess16,  // -16 times
  kLess128  // -128 times
};

// Five cache lines, holding only what the products of one layout read. With the data of all layouts, in ten
// lines, weights came from memory at three quarters of the rate (Zen 4, Q4_K, one thread). A scale is NaN if
// any of its values is not finite.
struct alignas(64) DotGroup {
  int8_t codes[kDotGroup];  // zeros after the end of the row
  union {
    // kSuper: sums[j] of codes [32 j, 32 j + 16), sums[8 + j] of [32 j + 16, 32 j + 32), the lanes of a
    // vector.
    int16_t sums[16];
    float block_sums[kDotGroup / kDotBlock];      // kSums
    int32_t block_starts[kDotGroup / kDotBlock];  // kLess8, kLess16, kLess128
  };
  union {
    float scale;                          // kSuper
    float scales[kDotGroup / kDotBlock];  // the others: one per block
  };
};

// Rows of weights that kernels take at a time, where they have several rows of x. Other numbers of rows cost
// as much as the next multiple.
inline constexpr int64_t kDotStrip = 16;

constexpr int64_t DotGroups(int64_t count) { return (count + kDotGroup - 1) / kDotGroup; }

// y[i][o] = row o of w . row i of x + bias[o]
struct IntDotTask {
  const std::byte* w;  // row 0
  int64_t w_stride;    // bytes
  int64_t rows;        // of w
  // Bytes ahead of a row at which formats that prefetch nothing themselves prefetch one; 0: not at all.
  int64_t ahead;
  const DotGroup* x;  // group g of row i is x[g * x_rows + i]: kernels read rows at a constant distance
  int64_t x_rows;
  int64_t count;      // values per row; a multiple of the block size
  const float* bias;  // of row 0, or null
  float* y;           // row 0 of x with row 0 of w
  int64_t y_stride;   // floats
};

struct IntDotKernels {
  // `count` is a multiple of kDotBlock. The row's groups go to groups[0], groups[step], groups[2 * step], ...
  void (*quantize)(const float* x, int64_t count, DotLayout layout, DotGroup* groups, int64_t step);
  DotLayout layout[kDTypes];                     // the layout of x that the product of each type reads
  void (*dot[kDTypes])(const IntDotTask& task);  // null for plain floats
};

// The CPU must have the instructions (base/cpu_info.h).
const IntDotKernels& Avx2IntDots();
const IntDotKernels& AvxVnniIntDots();
const IntDotKernels& Avx512VnniIntDots();

}  // namespace coppice::cpu
