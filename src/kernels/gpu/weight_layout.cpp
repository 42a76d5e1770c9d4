#include "kernels/gpu/weight_layout.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "formats/iq_blocks.h"
#include "formats/quant_blocks.h"
#include "formats/quants.h"

namespace coppice::gpu {

namespace {

constexpr int64_t kWeightTile = 128;  // of rows and inputs
constexpr int kMostValues = 256;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A block as integers: value i is d factor[i / group] (code[i] - zero) + m, or - m offset[i / group].
struct Codes {
  int values = 32;
  int8_t code[kMostValues] = {};
  int groups = 0;
  int8_t factor[16] = {};
  uint8_t offset[16] = {};
  F16 d{};
  F16 m{};
};

int Nibble(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
int Fifth(const uint8_t* high, int i) { return ((high[i / 8] >> (i % 8)) & 1) << 4; }
int Pair(const uint8_t* q, int i) { return (q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }
int NibbleK(const uint8_t* q, int i) { return (q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15; }

template <typename Code>
void SetCodes(Codes& c, int values, Code&& code) {
  c.values = values;
  for (int i = 0; i < values; ++i) c.code[i] = static_cast<int8_t>(code(i));
}

Codes CodesOf(const BlockQ4_0& b) {
  Codes c{.d = b.d};
  SetCodes(c, 32, [&](int i) { return Nibble(b.q, i); });
  return c;
}
Codes CodesOf(const BlockQ4_1& b) {
  Codes c{.d = b.d, .m = b.m};
  SetCodes(c, 32, [&](int i) { return Nibble(b.q, i); });
  return c;
}
Codes CodesOf(const BlockQ5_0& b) {
  Codes c{.d = b.d};
  SetCodes(c, 32, [&](int i) { return (Nibble(b.q, i) | Fifth(b.high, i)) - 16; });
  return c;
}
Codes CodesOf(const BlockQ5_1& b) {
  Codes c{.d = b.d, .m = b.m};
  SetCodes(c, 32, [&](int i) { return Nibble(b.q, i) | Fifth(b.high, i); });
  return c;
}
Codes CodesOf(const BlockQ8_0& b) {
  Codes c{.d = b.d};
  SetCodes(c, 32, [&](int i) { return b.q[i]; });
  return c;
}
Codes CodesOf(const BlockQ2_K& b) {
  Codes c{.groups = 16, .d = b.d, .m = b.dmin};
  SetCodes(c, 256, [&](int i) { return Pair(b.q, i); });
  for (int g = 0; g < 16; ++g) {
    c.factor[g] = static_cast<int8_t>(b.scales[g] & 15);
    c.offset[g] = b.scales[g] >> 4;
  }
  return c;
}
Codes CodesOf(const BlockQ3_K& b) {
  Codes c{.groups = 16, .d = b.d};
  SetCodes(c, 256, [&](int i) { return Pair(b.q, i) | ((b.high[i % 32] >> (i / 32)) & 1) << 2; });
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? b.scales[g] & 15 : b.scales[g - 8] >> 4;
    const int high = (b.scales[8 + g % 4] >> (g / 4 * 2)) & 3;
    c.factor[g] = static_cast<int8_t>((low | high << 4) - 32);
  }
  return c;
}

// The six-bit scales and minima of Q4_K and Q5_K.
void SetGroups(Codes& c, const uint8_t* s) {
  c.groups = 8;
  for (int j = 0; j < 8; ++j) {
    c.factor[j] = static_cast<int8_t>(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    c.offset[j] = static_cast<uint8_t>(j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}
Codes CodesOf(const BlockQ4_K& b) {
  Codes c{.d = b.d, .m = b.dmin};
  SetCodes(c, 256, [&](int i) { return NibbleK(b.q, i); });
  SetGroups(c, b.scales);
  return c;
}
Codes CodesOf(const BlockQ5_K& b) {
  Codes c{.d = b.d, .m = b.dmin};
  SetCodes(c, 256, [&](int i) { return NibbleK(b.q, i) | ((b.high[i % 32] >> (i / 32)) & 1) << 4; });
  SetGroups(c, b.scales);
  return c;
}
Codes CodesOf(const BlockQ6_K& b) {
  Codes c{.groups = 16, .d = b.d};
  SetCodes(c, 256, [&](int i) {
    const int half = i / 128;
    const int j = i % 128;
    const int low = (b.low[half * 64 + j % 64] >> (j / 64 * 4)) & 15;
    return (low | Pair(b.high, i) << 4) - 32;
  });
  std::memcpy(c.factor, b.scales, sizeof(b.scales));
  return c;
}
Codes CodesOf(const BlockIQ4_NL& b) {
  Codes c{.d = b.d};
  SetCodes(c, 32, [&](int i) { return kValuesIQ4[Nibble(b.q, i)]; });
  return c;
}
Codes CodesOf(const BlockIQ4_XS& b) {  // as Q6_K: each group of 32 is two of 16 with the same factor
  Codes c{.groups = 16, .d = b.d};
  SetCodes(c, 256, [&](int i) { return kValuesIQ4[Nibble(b.q + i / 32 * 16, i % 32)]; });
  for (int g = 0; g < 16; ++g) {
    const int j = g / 2;
    const int low = (b.scales[j / 2] >> (j % 2 * 4)) & 15;
    const int high = (b.high[j / 4] >> (j % 4 * 2)) & 3;
    c.factor[g] = static_cast<int8_t>((low | high << 4) - 32);
  }
  return c;
}

// The unit joins the factor, which loses bits where fp16 becomes subnormal.
template <typename Block>
requires requires(const Block& b) { IqCodesOf(b); }
Codes CodesOf(const Block& b) {
  const IqCodes iq = IqCodesOf(b);
  Codes c{.groups = 16, .d = ToF16(ToFloat(iq.d) * iq.unit)};
  SetCodes(c, 256, [&](int i) { return iq.code[i]; });
  std::memcpy(c.factor, iq.scale, sizeof(iq.scale));
  return c;
}

template <typename Block>
Codes Read(const std::byte* at) {
  Block block;
  std::memcpy(&block, at, sizeof(block));  // blocks in a file may be misaligned
  return CodesOf(block);
}

Codes CodesAt(DType type, const std::byte* at) {
  switch (type) {
    case DType::kQ4_0:
      return Read<BlockQ4_0>(at);
    case DType::kQ4_1:
      return Read<BlockQ4_1>(at);
    case DType::kQ5_0:
      return Read<BlockQ5_0>(at);
    case DType::kQ5_1:
      return Read<BlockQ5_1>(at);
    case DType::kQ8_0:
      return Read<BlockQ8_0>(at);
    case DType::kQ2_K:
      return Read<BlockQ2_K>(at);
    case DType::kQ3_K:
      return Read<BlockQ3_K>(at);
    case DType::kQ4_K:
      return Read<BlockQ4_K>(at);
    case DType::kQ5_K:
      return Read<BlockQ5_K>(at);
    case DType::kIQ4_NL:
      return Read<BlockIQ4_NL>(at);
    case DType::kIQ4_XS:
      return Read<BlockIQ4_XS>(at);
    case DType::kIQ2_XXS:
      return Read<BlockIQ2_XXS>(at);
    case DType::kIQ2_XS:
      return Read<BlockIQ2_XS>(at);
    case DType::kIQ2_S:
      return Read<BlockIQ2_S>(at);
    case DType::kIQ3_XXS:
      return Read<BlockIQ3_XXS>(at);
    case DType::kIQ3_S:
      return Read<BlockIQ3_S>(at);
    default:
      COPPICE_CHECK(type == DType::kQ6_K);
      return Read<BlockQ6_K>(at);
  }
}

// The part of an array that belongs to one row.
std::byte* RowOf(const WeightLayout::Array& array, int64_t row, std::span<std::byte> to) {
  return to.data() + array.offset + row * array.row_bytes;
}

void StoreBlock(const Codes& c, int64_t block, const WeightLayout& layout, int64_t row,
                std::span<std::byte> to) {
  const int64_t first = block * c.values;
  std::byte* codes = RowOf(layout.codes, row, to);
  for (int i = 0; i < c.values; i += layout.bits == 4 ? 2 : 1) {
    const int value = layout.bits == 4 ? c.code[i] | c.code[i + 1] << 4 : c.code[i];
    codes[(first + i) * layout.bits / 8] = static_cast<std::byte>(value);
  }
  std::memcpy(RowOf(layout.scales, row, to) + 2 * block, &c.d, 2);
  if (layout.minima) std::memcpy(RowOf(layout.mins, row, to) + 2 * block, &c.m, 2);
  if (!layout.super) return;
  std::memcpy(RowOf(layout.groups, row, to) + block * c.groups, c.factor, static_cast<size_t>(c.groups));
  if (layout.minima)
    std::memcpy(RowOf(layout.group_mins, row, to) + block * c.groups, c.offset,
                static_cast<size_t>(c.groups));
}

void SetForm(DType type, WeightLayout& l) {
  const auto set = [&](std::string_view form, int bits, bool minima, float zero, int64_t group) {
    l.form = form;
    l.bits = bits;
    l.minima = minima;
    l.zero = zero;
    l.group = group;
    l.super = group > 0;
  };
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kMXFP4:  // whose values bf16 holds exactly
      return set("bf16", 16, false, 0, 0);
    case DType::kQ4_0:
      return set("q4", 4, false, 8, 0);
    case DType::kQ4_1:
      return set("q4", 4, true, 0, 0);
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return set("q8", 8, false, 0, 0);
    case DType::kQ5_1:
      return set("q8", 8, true, 0, 0);
    case DType::kQ2_K:
      return set("q4k", 4, true, 0, 16);
    case DType::kQ3_K:
      return set("q4k", 4, false, 4, 16);
    case DType::kQ4_K:
      return set("q4k", 4, true, 0, 32);
    case DType::kQ5_K:
      return set("q8k", 8, true, 0, 32);
    case DType::kQ6_K:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return set("q8k", 8, false, 0, 16);
  }
}

}  // namespace

WeightLayout LayoutOf(DType type, int64_t rows, int64_t cols) {
  WeightLayout l;
  SetForm(type, l);
  l.rows = RoundUp(rows, kWeightTile);
  l.k = RoundUp(cols, kWeightTile);
  const auto add = [&](WeightLayout::Array& array, int64_t row_bytes) {
    array = {l.bytes, row_bytes};
    l.bytes = RoundUp(l.bytes + l.rows * row_bytes, 256);
  };
  add(l.codes, l.k * l.bits / 8);
  if (l.bits == 16) return l;
  const int64_t blocks = l.super ? (l.k + 255) / 256 : l.k / 32;
  add(l.scales, 2 * blocks);
  if (l.minima) add(l.mins, 2 * blocks);
  if (!l.super) return l;
  add(l.groups, l.k / l.group);
  if (l.minima) add(l.group_mins, l.k / l.group);
  return l;
}

void Repack(const TensorView& w, const WeightLayout& layout, std::span<std::byte> to) {
  COPPICE_CHECK(w.memory == nullptr && static_cast<int64_t>(to.size()) == layout.bytes);
  std::memset(to.data(), 0, to.size());
  const DTypeInfo& info = Info(w.dtype);
  std::vector<float> values(layout.bits == 16 ? static_cast<size_t>(w.cols) : 0);
  for (int64_t row = 0; row < w.rows; ++row) {
    if (layout.bits == 16) {
      DequantizeRow(w.dtype, w.RowBytes(row), values);
      QuantizeRow(DType::kBF16, values, RowOf(layout.codes, row, to));
      continue;
    }
    for (int64_t block = 0; block * info.block_elements < w.cols; ++block)
      StoreBlock(CodesAt(w.dtype, w.RowBytes(row) + block * info.block_bytes), block, layout, row, to);
  }
}

}  // namespace coppice::gpu
