#include "formats/quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "formats/iq_blocks.h"
#include "formats/quant_blocks.h"

namespace coppice {
namespace {

// Each Decode writes the values of one block. The multiplications have ggml's order, so results are bit-equal
// to ggml's reference, not just close.

constexpr int kSmall = 32;   // values in a block
constexpr int kSuper = 256;  // values in a super-block

int Nibble(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
int HighBit(const uint8_t* high, int i) { return (high[i / 8] >> (i % 8)) & 1; }

void Decode(const BlockQ4_0& b, float* y) {
  const float d = ToFloat(b.d);
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(Nibble(b.q, i) - 8) * d;
}

void Decode(const BlockQ4_1& b, float* y) {
  const float d = ToFloat(b.d), m = ToFloat(b.m);
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(Nibble(b.q, i)) * d + m;
}

void Decode(const BlockQ5_0& b, float* y) {
  const float d = ToFloat(b.d);
  for (int i = 0; i < kSmall; ++i) {
    y[i] = static_cast<float>((Nibble(b.q, i) | HighBit(b.high, i) << 4) - 16) * d;
  }
}

void Decode(const BlockQ5_1& b, float* y) {
  const float d = ToFloat(b.d), m = ToFloat(b.m);
  for (int i = 0; i < kSmall; ++i) {
    y[i] = static_cast<float>(Nibble(b.q, i) | HighBit(b.high, i) << 4) * d + m;
  }
}

void Decode(const BlockQ8_0& b, float* y) {
  const float d = ToFloat(b.d);
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(b.q[i]) * d;
}

// The two bits of value i: of each 128 values, byte i % 32 holds four, 32 apart.
int Pair(const uint8_t* q, int i) { return (q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }

void Decode(const BlockQ2_K& b, float* y) {
  const float d = ToFloat(b.d), dmin = ToFloat(b.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(b.scales[group] & 15);
    const float min = dmin * static_cast<float>(b.scales[group] >> 4);
    for (int i = group * 16; i < group * 16 + 16; ++i) y[i] = scale * static_cast<float>(Pair(b.q, i)) - min;
  }
}

void Decode(const BlockQ3_K& b, float* y) {
  const float d = ToFloat(b.d);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? b.scales[group] & 15 : b.scales[group - 8] >> 4;
    const int high = (b.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      const int third = (b.high[i % 32] >> (i / 32)) & 1;
      y[i] = scale * static_cast<float>((Pair(b.q, i) | third << 2) - 4);
    }
  }
}

// Scale and minimum of group j of a Q4_K or Q5_K block, six bits each. The upper two bits of groups 4 to 7
// are stored in the top bits of the bytes of groups 0 to 3.
struct ScaleMin {
  float scale, min;
};
ScaleMin ScaleMinOf(const uint8_t* s, int j, float d, float dmin) {
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

// Value i of a Q4_K block, or the low four bits of value i of a Q5_K block.
int NibbleK(const uint8_t* q, int i) { return (q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15; }

void Decode(const BlockQ4_K& b, float* y) {
  const float d = ToFloat(b.d), dmin = ToFloat(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = ScaleMinOf(b.scales, group, d, dmin);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      y[i] = s.scale * static_cast<float>(NibbleK(b.q, i)) - s.min;
    }
  }
}

void Decode(const BlockQ5_K& b, float* y) {
  const float d = ToFloat(b.d), dmin = ToFloat(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = ScaleMinOf(b.scales, group, d, dmin);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      const int fifth = (b.high[i % 32] >> group) & 1;
      y[i] = s.scale * static_cast<float>(NibbleK(b.q, i) | fifth << 4) - s.min;
    }
  }
}

void Decode(const BlockQ6_K& b, float* y) {
  const float d = ToFloat(b.d);
  for (int i = 0; i < kSuper; ++i) {
    const int half = i / 128, j = i % 128;
    const int low = (b.low[half * 64 + j % 64] >> (j / 64 * 4)) & 15;
    const int q = (low | Pair(b.high, i) << 4) - 32;
    y[i] = d * static_cast<float>(b.scales[i / 16]) * static_cast<float>(q);
  }
}

void Decode(const BlockIQ4_NL& b, float* y) {
  const float d = ToFloat(b.d);
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(kValuesIQ4[Nibble(b.q, i)]) * d;
}

void Decode(const BlockMXFP4& b, float* y) {
  const float d = std::ldexp(1.0f, b.e - 128);  // exact: subnormal for e = 0 and 1
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(kValuesMXFP4[Nibble(b.q, i)]) * d;
}

void Decode(const BlockIQ4_XS& b, float* y) {
  const float d = ToFloat(b.d);
  for (int group = 0; group < kSuper / kSmall; ++group) {
    const int low = (b.scales[group / 2] >> (group % 2 * 4)) & 15;
    const int high = (b.high[group / 4] >> (group % 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = 0; i < kSmall; ++i) {
      y[group * kSmall + i] = scale * static_cast<float>(kValuesIQ4[Nibble(b.q + group * 16, i)]);
    }
  }
}

template <typename Block>
requires requires(const Block& b) { IqCodesOf(b); }
void Decode(const Block& b, float* y) {
  const IqCodes c = IqCodesOf(b);
  const float d = ToFloat(c.d) * c.unit;
  for (int i = 0; i < kSuper; ++i) {
    y[i] = d * static_cast<float>(c.scale[i / 16]) * static_cast<float>(c.code[i]);
  }
}

// Copies each block, because blocks in a file may be misaligned for their fp16 members.
template <typename Block>
void DecodeAll(const std::byte* blocks, std::span<float> y, size_t values) {
  for (size_t i = 0; i < y.size(); i += values, blocks += sizeof(Block)) {
    Block block;
    std::memcpy(&block, blocks, sizeof(block));
    Decode(block, y.data() + i);
  }
}

// The same for F16 and BF16.
template <typename T>
void Widen(const std::byte* values, std::span<float> y) {
  for (float& out : y) {
    T value;
    std::memcpy(&value, values, sizeof(value));
    out = ToFloat(value);
    values += sizeof(value);
  }
}

// Both encoders take d from the value of largest magnitude and divide by d before its rounding to fp16, like
// ggml's quantize_row_*_ref. If 1 / d would overflow, d is zero in fp16 and so is every value.
float InverseOf(float d) { return std::abs(d) >= std::numeric_limits<float>::min() ? 1 / d : 0; }

void Encode(const float* x, BlockQ8_0& b) {
  float largest = 0;
  for (int i = 0; i < kSmall; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127;
  const float inverse = InverseOf(d);
  b.d = ToF16(d);
  for (int i = 0; i < kSmall; ++i)
    b.q[i] = static_cast<int8_t>(std::clamp(std::round(x[i] * inverse), -127.f, 127.f));
}

void Encode(const float* x, BlockQ4_0& b) {
  float extreme = 0;  // signed: it gets the code -8, which has no positive counterpart
  for (int i = 0; i < kSmall; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  const float d = extreme / -8;
  const float inverse = InverseOf(d);
  b.d = ToF16(d);
  const auto code = [&](float v) { return static_cast<unsigned>(std::clamp(v * inverse + 8.5f, 0.f, 15.f)); };
  for (int i = 0; i < 16; ++i) b.q[i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
}

// The exponent gives the largest value the code 4 or 6. Each value gets the nearest code, of equally near
// ones the first.
void Encode(const float* x, BlockMXFP4& b) {
  float largest = 0;
  for (int i = 0; i < kSmall; ++i) largest = std::max(largest, std::abs(x[i]));
  int above = 0;  // largest < 2^above
  std::frexp(largest, &above);
  b.e = static_cast<uint8_t>(largest > 0 ? std::clamp(above - 3 + 127, 0, 254) : 0);
  const float d = std::ldexp(1.0f, b.e - 128);
  const auto code = [&](float v) {
    unsigned best = 0;
    for (unsigned i = 1; i < 16; ++i) {
      if (std::abs(kValuesMXFP4[i] * d - v) < std::abs(kValuesMXFP4[best] * d - v)) best = i;
    }
    return best;
  };
  for (int i = 0; i < 16; ++i) b.q[i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
}

template <typename Block>
void EncodeAll(std::span<const float> x, std::byte* blocks) {
  for (const float v : x) {
    if (!std::isfinite(v)) throw Error("[quants] cannot quantise the value {}", v);
  }
  for (size_t i = 0; i < x.size(); i += kSmall, blocks += sizeof(Block)) {
    Block block;
    Encode(x.data() + i, block);
    std::memcpy(blocks, &block, sizeof(block));
  }
}

template <typename T, typename Convert>
void Narrow(std::span<const float> x, std::byte* out, Convert convert) {
  for (const float v : x) {
    const T value = convert(v);
    std::memcpy(out, &value, sizeof(value));
    out += sizeof(value);
  }
}

}  // namespace

void DequantizeRow(DType type, const std::byte* blocks, std::span<float> y) {
  COPPICE_CHECK(y.size() % static_cast<size_t>(Info(type).block_elements) == 0);
  if (y.empty()) return;
  switch (type) {
    case DType::kF32:
      std::memcpy(y.data(), blocks, y.size_bytes());
      return;
    case DType::kF16:
      return Widen<F16>(blocks, y);
    case DType::kBF16:
      return Widen<BF16>(blocks, y);
    case DType::kQ4_0:
      return DecodeAll<BlockQ4_0>(blocks, y, kSmall);
    case DType::kQ4_1:
      return DecodeAll<BlockQ4_1>(blocks, y, kSmall);
    case DType::kQ5_0:
      return DecodeAll<BlockQ5_0>(blocks, y, kSmall);
    case DType::kQ5_1:
      return DecodeAll<BlockQ5_1>(blocks, y, kSmall);
    case DType::kQ8_0:
      return DecodeAll<BlockQ8_0>(blocks, y, kSmall);
    case DType::kQ2_K:
      return DecodeAll<BlockQ2_K>(blocks, y, kSuper);
    case DType::kQ3_K:
      return DecodeAll<BlockQ3_K>(blocks, y, kSuper);
    case DType::kQ4_K:
      return DecodeAll<BlockQ4_K>(blocks, y, kSuper);
    case DType::kQ5_K:
      return DecodeAll<BlockQ5_K>(blocks, y, kSuper);
    case DType::kQ6_K:
      return DecodeAll<BlockQ6_K>(blocks, y, kSuper);
    case DType::kIQ4_NL:
      return DecodeAll<BlockIQ4_NL>(blocks, y, kSmall);
    case DType::kMXFP4:
      return DecodeAll<BlockMXFP4>(blocks, y, kSmall);
    case DType::kIQ4_XS:
      return DecodeAll<BlockIQ4_XS>(blocks, y, kSuper);
    case DType::kIQ2_XXS:
      return DecodeAll<BlockIQ2_XXS>(blocks, y, kSuper);
    case DType::kIQ2_XS:
      return DecodeAll<BlockIQ2_XS>(blocks, y, kSuper);
    case DType::kIQ2_S:
      return DecodeAll<BlockIQ2_S>(blocks, y, kSuper);
    case DType::kIQ3_XXS:
      return DecodeAll<BlockIQ3_XXS>(blocks, y, kSuper);
    case DType::kIQ3_S:
      return DecodeAll<BlockIQ3_S>(blocks, y, kSuper);
  }
}

void QuantizeRow(DType type, std::span<const float> x, std::byte* blocks) {
  COPPICE_CHECK(x.size() % static_cast<size_t>(Info(type).block_elements) == 0);
  if (x.empty()) return;
  switch (type) {
    case DType::kF32:
      std::memcpy(blocks, x.data(), x.size_bytes());
      return;
    case DType::kF16:
      return Narrow<F16>(x, blocks, [](float v) { return ToF16(v); });
    case DType::kBF16:
      return Narrow<BF16>(x, blocks, [](float v) { return ToBF16(v); });
    case DType::kQ8_0:
      return EncodeAll<BlockQ8_0>(x, blocks);
    case DType::kQ4_0:
      return EncodeAll<BlockQ4_0>(x, blocks);
    case DType::kMXFP4:
      return EncodeAll<BlockMXFP4>(x, blocks);
    default:
      throw Error("[quants] cannot quantise to {}", Info(type).name);
  }
}

}  // namespace coppice
