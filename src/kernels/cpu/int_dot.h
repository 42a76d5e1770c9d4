// Matrix-vector products of quantised weights in integers, as a table of function pointers (see
// kernel_table.h: intrinsics files include this, so it holds plain structs and declarations only).
//
// Weights keep their stored codes; x becomes int8 codes in groups of kDotGroup values with one fp32 scale
// each, the group's largest magnitude / 127. Sums of codes are exact within a block of weights; what fp32
// adds up are the blocks, in an order that depends on the row's length alone. So a product has the same bits
// on every ISA that has these kernels, in any company of rows and on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {

inline constexpr int64_t kDotGroup = 256;  // a super-block of the K formats; 8 blocks of the others
inline constexpr int64_t kDotBlock = 32;   // rows are whole blocks

// Five cache lines, and no more in them than the products of one type read: with both orders in ten lines, weights came
// from memory at three quarters of the rate (Zen 4, Q4_K, one thread).
struct alignas(64) DotGroup {
  int8_t codes[kDotGroup];  // zeros behind the end of the row; see IntDotKernels::paired for their order
  union {
    // [j] of codes [32 j, 32 j + 16), [8 + j] of [32 j + 16, 32 j + 32): lanes of a vector. Not of paired codes.
    int16_t sums[16];
    float block_sums[kDotGroup / kDotBlock];  // of paired codes: of each block
  };
  float scale;  // NaN where the group holds a value that is not finite
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
  void (*quantize)(const float* x, int64_t count, bool paired, DotGroup* groups);
  // By type, the order of x's codes: as they are, or of every two blocks the first 16 of both, then the last 16.
  bool paired[kDTypes];
  void (*dot[kDTypes])(const IntDotTask& task);  // null for plain floats
};

// Callers ask only where the CPU has the instructions (base/cpu_info.h).
const IntDotKernels& Avx2IntDots();
const IntDotKernels& AvxVnniIntDots();
const IntDotKernels& Avx512VnniIntDots();

}  // namespace coppice::cpu
