// Element types of tensors: plain floats, and the quantised blocks of GGUF files.
#pragma once

#include <cstdint>
#include <string_view>

namespace coppice {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,  // blocks of 32
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,  // super-blocks of 256
  kIQ4_NL,
  kMXFP4,   // blocks of 32 whose codes are places in a table
  kIQ4_XS,  // super-blocks of such codes
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,  // super-blocks whose codes are places in a grid of eight or four values
};

struct DTypeInfo {
  std::string_view name;   // as GGUF tools print it, e.g. "Q4_K"
  int64_t block_elements;  // values per block; 1 for plain floats
  int64_t block_bytes;
};

const DTypeInfo& Info(DType type);

// Bytes of `elements` consecutive values; `elements` must be a multiple of the block size.
inline int64_t BytesOf(DType type, int64_t elements) {
  const DTypeInfo& info = Info(type);
  return elements / info.block_elements * info.block_bytes;
}

// IEEE half and bfloat16 as raw bits. The conversions round to nearest even and preserve NaN.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

float ToFloat(F16 h);
float ToFloat(BF16 b);
F16 ToF16(float f);
BF16 ToBF16(float f);

}  // namespace coppice
