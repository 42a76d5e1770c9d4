#include "tensor/dtype.h"

#include <array>
#include <bit>

namespace coppice {

const DTypeInfo& Info(DType type) {
  // In the order of the enum. The block sizes are those of ggml's block_* structs.
  static constexpr std::array<DTypeInfo, 21> kInfo = {{
      {"F32", 1, 4},        {"F16", 1, 2},       {"BF16", 1, 2},     {"Q4_0", 32, 18},
      {"Q4_1", 32, 20},     {"Q5_0", 32, 22},    {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
      {"Q2_K", 256, 84},    {"Q3_K", 256, 110},  {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
      {"Q6_K", 256, 210},   {"IQ4_NL", 32, 18},  {"MXFP4", 32, 17},  {"IQ4_XS", 256, 136},
      {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74}, {"IQ2_S", 256, 82}, {"IQ3_XXS", 256, 98},
      {"IQ3_S", 256, 110},
  }};
  return kInfo[static_cast<size_t>(type)];
}

float ToFloat(F16 h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float ToFloat(BF16 b) { return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }

F16 ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};  // NaN
  if (magnitude >= 0x477ff000u)
    return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past the largest half
  if (magnitude <
      0x38800000u) {  // subnormal half: let fp32 addition do the rounding, 0.5f has an ulp of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u))};
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<uint16_t>(sign | ((magnitude + 0xfffu + odd - 0x38000000u) >> 13))};
}

BF16 ToBF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace coppice
