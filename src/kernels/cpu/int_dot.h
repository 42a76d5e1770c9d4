// Matrix-vector products of quantised weights in integers, as a table of function pointers (see
// kernel_table.h: intrinsics files include this, so it holds plain structs and declarations only).
//
// Weights keep their stored codes; x becomes int8 codes with an fp32 scale for as many values as share one in the weights
// (a block of 32, or a super-block of 256): the largest magnitude among them / 127. Sums of codes are exact within a block
// of weights; what fp32 adds up are the blocks, in an order that depends on the row's length alone. So a product has the
// same bits on every ISA that has these kernels, in any company of rows and on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {

inline constexpr int64_t kDotGroup = 256;  // a super-block of the K formats; 8 blocks of the others
inline constexpr int64_t kDotBlock = 32;   // rows are whole blocks

// What a type of weights wants of x's codes.
enum class DotLayout : uint8_t {
  kSuper,   // one scale; in order
  kBlocks,  // a scale per block; in order
  kPaired,  // a scale per block; of every two blocks the first 16 codes of both, then the last 16
};

// Five cache lines, and no more in them than the products of one layout read: with all of it in ten lines, weights came
// from memory at three quarters of the rate (Zen 4, Q4_K, one thread). A scale is NaN where one of its values is not finite.
struct alignas(64) DotGroup {
  int8_t codes[kDotGroup];  // zeros behind the end of the row
  union {
    // kSuper: [j] of codes [32 j, 32 j + 16), [8 + j] of [32 j + 16, 32 j + 32): lanes of a vector.
    int16_t sums[16];
    float block_sums[kDotGroup / kDotBlock];  // kPaired: of each block's codes
  };
  union {
    float scale;                          // kSuper
    float scales[kDotGroup / kDotBlock];  // of each block
  };
};

constexpr int64_t DotGroups(int64_t count) { return (count + kDotGroup - 1) / kDotGroup; }

// y[o] = row o of w . x + bias[o]
struct IntDotTask {
  const std::byte* w;  // row 0
  int64_t w_stride;    // bytes
  int64_t rows;        // of w
  const DotGroup* x;   // [DotGroups(count)]
  int64_t count;       // values per row, whole blocks
  const float* bias;   // of row 0, or null
  float* y;            // of row 0
};

struct IntDotKernels {
  // `count` is whole blocks of kDotBlock.
  void (*quantize)(const float* x, int64_t count, DotLayout layout, DotGroup* groups);
  DotLayout layout[kDTypes];                     // that the product of a type reads
  void (*dot[kDTypes])(const IntDotTask& task);  // null for plain floats
};

// Callers ask only where the CPU has the instructions (base/cpu_info.h).
const IntDotKernels& Avx2IntDots();
const IntDotKernels& AvxVnniIntDots();
const IntDotKernels& Avx512VnniIntDots();

}  // namespace coppice::cpu
