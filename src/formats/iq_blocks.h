// The super-blocks of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S as integers.
#pragma once

#include <cstdint>

#include "formats/quant_blocks.h"

namespace coppice {

// Value i is d * unit * scale[i / 16] * code[i], which fp32 holds exactly unless it is subnormal.
struct IqCodes {
  F16 d;
  float unit;        // a power of two, of the format
  int8_t scale[16];  // odd, 1 to 31
  int8_t code[256];  // magnitudes up to 62
};

IqCodes IqCodesOf(const BlockIQ2_XXS& b);
IqCodes IqCodesOf(const BlockIQ2_XS& b);
IqCodes IqCodesOf(const BlockIQ2_S& b);
IqCodes IqCodesOf(const BlockIQ3_XXS& b);
IqCodes IqCodesOf(const BlockIQ3_S& b);

}  // namespace coppice
