// The quantised blocks as stored in GGUF files. Blocks of 32 values have one scale (and minimum).
// Super-blocks of 256 ("K") have 8 or 16 groups, whose scales are integers times an fp16 factor. Layouts:
// ggml-common.h of ggml.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace coppice {

struct BlockQ4_0 {  // x = d (q - 8)
  F16 d;
  uint8_t q[16];  // value j in the low nibble of byte j, value j + 16 in the high one
};
struct BlockQ4_1 {  // x = d q + m
  F16 d, m;
  uint8_t q[16];  // as in Q4_0
};
struct BlockQ5_0 {  // x = d (q - 16)
  F16 d;
  uint8_t high[4];  // little-endian 32 bits: bit j is the fifth bit of value j
  uint8_t q[16];    // as in Q4_0
};
struct BlockQ5_1 {  // x = d q + m
  F16 d, m;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockQ8_0 {  // x = d q
  F16 d;
  int8_t q[32];
};
struct BlockQ2_K {     // 16 groups of 16: x = d scale q - dmin min
  uint8_t scales[16];  // per group: scale in the low nibble, min in the high one
  uint8_t q[64];       // 2 bits each
  F16 d, dmin;
};
struct BlockQ3_K {     // 16 groups of 16: x = d (scale - 32) (q - 4)
  uint8_t high[32];    // bit i / 32 of byte i % 32 is the third bit of value i
  uint8_t q[64];       // the two low bits, in the order of Q2_K
  uint8_t scales[12];  // 6 bits each: 16 low nibbles in 8 bytes, then 16 high pairs in 4
  F16 d;
};
struct BlockQ4_K {  // 8 groups of 32: x = d scale q - dmin min
  F16 d, dmin;
  uint8_t scales[12];  // 8 scales and 8 minima of 6 bits
  uint8_t q[128];      // of each 64 values: the first 32 in the low nibbles, the rest in the high ones
};
struct BlockQ5_K {  // Q4_K with a fifth bit
  F16 d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit i / 32 of byte i % 32 is the fifth bit of value i
  uint8_t q[128];
};
struct BlockQ6_K {   // 16 groups of 16: x = d scale (q - 32)
  uint8_t low[128];  // of each 128 values: 64 low nibbles, then 64 high ones
  uint8_t high[64];  // of each 128 values, 2 bits each: byte i % 32, pair i / 32
  int8_t scales[16];
  F16 d;
};
struct BlockIQ4_NL {  // x = d kValuesIQ4[q]
  F16 d;
  uint8_t q[16];  // as in Q4_0
};
struct BlockMXFP4 {  // x = 2^(e - 128) kValuesMXFP4[q]
  uint8_t e;
  uint8_t q[16];  // as in Q4_0
};
struct BlockIQ4_XS {  // 8 groups of 32: x = d (scale - 32) kValuesIQ4[q]
  F16 d;
  uint8_t high[2];    // little-endian 16 bits: bits 2 i and 2 i + 1 are the upper two of scale i
  uint8_t scales[4];  // the lower four, a nibble each, the first in the low one
  uint8_t q[128];     // of each group 16 bytes, as in Q4_0
};
// 8 groups of 32 values, whose magnitudes come in eights or fours from a grid (iq_grids.h). Scales have four
// bits: x = d unit (2 scale + 1) code, iq_blocks.h.
struct BlockIQ2_XXS {
  F16 d;
  uint8_t q[64];  // of each group: 4 places in the grid, then 32 bits: 4 times 7 of signs, and the scale
};
struct BlockIQ2_XS {
  F16 d;
  uint8_t q[64];      // of each eight values 16 bits: 9 of the place in the grid, 7 of signs
  uint8_t scales[8];  // of each group: the scale of its first 16 values in the low nibble
};
struct BlockIQ2_S {
  F16 d;
  uint8_t q[32];      // of each eight values the low bits of the place in the grid
  uint8_t signs[32];  // a bit each
  uint8_t high[8];    // the upper two bits of the places, a byte per group
  uint8_t scales[8];  // as in IQ2_XS
};
struct BlockIQ3_XXS {
  F16 d;
  uint8_t q[64];      // of each four values the place in the grid
  uint8_t signs[32];  // of each group 32 bits, as in IQ2_XXS
};
struct BlockIQ3_S {
  F16 d;
  uint8_t q[64];      // of each four values the low bits of the place in the grid
  uint8_t high[8];    // the ninth bits of the places, a byte per group
  uint8_t signs[32];  // a bit each
  uint8_t scales[4];  // of two groups, the first in the low nibble
};

// The values of the codes of IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml).
inline constexpr int8_t kValuesIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Those of MXFP4: twice the values of E2M1 in the OCP Microscaling Formats specification 1.0, so that all are
// integers; the scale is half of the block's.
inline constexpr int8_t kValuesMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockIQ4_XS) == 136 && sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82 && sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);

}  // namespace coppice
