#include "formats/quants.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/fnv.h"
#include "formats/gguf.h"
#include "formats/iq_grids.h"
#include "formats/json.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

constexpr uint16_t kHalf = 0x3800, kQuarter = 0x3400, kTwo = 0x4000, kMinusThree = 0xC200;  // as fp16

std::vector<float> Dequantize(DType type, const Bytes& block) {
  EXPECT_EQ(static_cast<int64_t>(block.text().size()), Info(type).block_bytes);
  std::vector<float> y(static_cast<size_t>(Info(type).block_elements));
  DequantizeRow(type, block.span().data(), y);
  return y;
}

TEST(Quants, PlainFloatsWiden) {
  Bytes bytes;
  bytes.Raw("x").Put(kHalf).Put(kMinusThree);  // at an odd address
  std::array<float, 2> y;
  DequantizeRow(DType::kF16, bytes.span().data() + 1, y);
  EXPECT_EQ(y, (std::array<float, 2>{0.5f, -3.0f}));
  Bytes bf16;
  bf16.Raw("x").Put<uint16_t>(0x3F80).Put<uint16_t>(0xC040);
  DequantizeRow(DType::kBF16, bf16.span().data() + 1, y);
  EXPECT_EQ(y, (std::array<float, 2>{1.0f, -3.0f}));
  Bytes f32;
  f32.Raw("x").Put(1.25f).Put(-7.0f);
  DequantizeRow(DType::kF32, f32.span().data() + 1, y);
  EXPECT_EQ(y, (std::array<float, 2>{1.25f, -7.0f}));
}

// Blocks of 32: byte j holds value j in its low nibble and value j + 16 in its high one. Byte j is 16 * ((j +
// 3) % 16) + j.
Bytes Ramp(Bytes head) {
  for (int j = 0; j < 16; ++j) head.Put(static_cast<uint8_t>((j + 3) % 16 << 4 | j));
  return head;
}
int RampCode(int i) { return i < 16 ? i : (i - 16 + 3) % 16; }

TEST(Quants, Q4_0) {
  const auto y = Dequantize(DType::kQ4_0, Ramp(Bytes().Put(kHalf)));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 0.5f * (RampCode(i) - 8)) << i;
}

TEST(Quants, Q4_1) {
  const auto y = Dequantize(DType::kQ4_1, Ramp(Bytes().Put(kHalf).Put(kMinusThree)));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 0.5f * RampCode(i) - 3) << i;
}

// The fifth bits of values 0, 3, 17 and 31 are set.
constexpr uint32_t kFifths = 1u | 1u << 3 | 1u << 17 | 1u << 31;
int Fifth(int i) { return i == 0 || i == 3 || i == 17 || i == 31 ? 16 : 0; }

TEST(Quants, Q5_0) {
  const auto y = Dequantize(DType::kQ5_0, Ramp(Bytes().Put(kTwo).Put(kFifths)));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 2.0f * (RampCode(i) + Fifth(i) - 16)) << i;
}

TEST(Quants, Q5_1) {
  const auto y = Dequantize(DType::kQ5_1, Ramp(Bytes().Put(kTwo).Put(kHalf).Put(kFifths)));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 2.0f * (RampCode(i) + Fifth(i)) + 0.5f) << i;
}

TEST(Quants, Q8_0) {
  Bytes block;
  block.Put(kQuarter);
  for (int i = 0; i < 32; ++i) block.Put(static_cast<int8_t>(i * 8 - 128));
  const auto y = Dequantize(DType::kQ8_0, block);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 2.0f * i - 32) << i;
}

// Packs codes and scales into a Q3_K block bit by bit. Independent of the decoder: the layout is written as
// sets of bits.
Bytes PackQ3K(const std::array<int, 256>& codes, const std::array<int, 16>& scales, uint16_t d) {
  std::array<uint8_t, 32> high{};
  std::array<uint8_t, 64> low{};
  std::array<uint8_t, 12> packed{};
  for (int half = 0, i = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int byte = 0; byte < 32; ++byte, ++i) {
        low[32 * half + byte] |= static_cast<uint8_t>((codes[i] & 3) << shift);
        if (codes[i] >= 4) high[byte] |= static_cast<uint8_t>(1 << (half * 4 + shift / 2));
      }
    }
  }
  for (int j = 0; j < 8; ++j) packed[j] = static_cast<uint8_t>((scales[j] & 15) | (scales[j + 8] & 15) << 4);
  for (int j = 0; j < 16; ++j) packed[8 + j % 4] |= static_cast<uint8_t>(scales[j] >> 4 << (j / 4 * 2));
  Bytes block;
  for (const uint8_t b : high) block.Put(b);
  for (const uint8_t b : low) block.Put(b);
  for (const uint8_t b : packed) block.Put(b);
  block.Put(d);
  return block;
}

TEST(Quants, Q3_K) {
  std::array<int, 256> codes;
  std::array<int, 16> scales;
  for (int i = 0; i < 256; ++i) codes[i] = (i * 5 + i / 7) % 8;
  for (int j = 0; j < 16; ++j) scales[j] = (j * 11 + 2) % 64;
  const auto y = Dequantize(DType::kQ3_K, PackQ3K(codes, scales, kHalf));
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[i], 0.5f * (scales[i / 16] - 32) * (codes[i] - 4)) << i;
}

// Q2_K, Q4_K, Q5_K and Q6_K against a public reference.
TEST(Quants, MatchTheReferenceOfTinyKquant) {
  COPPICE_NEEDS_SHARED("data/parity/tiny_kquant.gguf");
  const auto file = GgufFile::Open(SharedPath("data/parity/tiny_kquant.gguf"));
  const auto reference = ReadJsonFile(SharedPath("data/parity/tiny_kquant_ref.json"));
  int compared = 0;
  for (const StoredTensor& tensor : file->tensors()) {
    const std::string name(Info(tensor.view.dtype).name);
    const auto expected = reference["dequant"].value(name, nlohmann::json());
    if (expected.is_null()) continue;
    ASSERT_EQ(static_cast<int64_t>(expected.size()), tensor.view.rows * tensor.view.cols) << tensor.name;
    std::vector<float> y(static_cast<size_t>(tensor.view.cols));
    for (int64_t row = 0; row < tensor.view.rows; ++row) {
      DequantizeRow(tensor.view.dtype, tensor.view.RowBytes(row), y);
      for (int64_t col = 0; col < tensor.view.cols; ++col) {
        const float want = expected[row * tensor.view.cols + col].get<float>();
        ASSERT_NEAR(y[col], want, 1e-6f * (1 + std::abs(want))) << tensor.name << " " << row << " " << col;
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

// The same bits as the values that the gguf package reads (tools/make_quant_golden.py).
TEST(Quants, TypesWithTablesMatchTheGgufPackage) {
  const auto golden = ReadJsonFile(COPPICE_SOURCE_DIR "/tests/data/quants/blocks.json");
  for (const DType type : {DType::kIQ4_NL, DType::kMXFP4, DType::kIQ4_XS, DType::kIQ2_XXS, DType::kIQ2_XS,
                           DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S}) {
    const auto& of_type = golden.at(std::string(Info(type).name));
    const auto bytes = of_type.at("bytes").get<std::vector<uint8_t>>();
    const auto bits = of_type.at("bits").get<std::vector<uint32_t>>();
    ASSERT_EQ(BytesOf(type, static_cast<int64_t>(bits.size())), static_cast<int64_t>(bytes.size()));
    std::vector<float> y(bits.size());
    DequantizeRow(type, reinterpret_cast<const std::byte*>(bytes.data()), y);
    for (size_t i = 0; i < y.size(); ++i) {
      // Zeros may differ in their sign.
      ASSERT_TRUE(std::bit_cast<uint32_t>(y[i]) == bits[i] || (y[i] == 0 && bits[i] << 1 == 0))
          << Info(type).name << " value " << i << ": " << y[i];
    }
  }
}

template <typename Grid>
uint64_t HashOf(const Grid& grid) {
  return Fnv1a({reinterpret_cast<const char*>(grid.at), sizeof grid.at});
}

// All entries, of which the blocks above have some.
TEST(Quants, GridsAreThoseOfTheGgufPackage) {
  const auto golden = ReadJsonFile(COPPICE_SOURCE_DIR "/tests/data/quants/blocks.json");
  const auto expect = [&](const char* name, uint64_t hash) {
    EXPECT_EQ(hash, golden.at(name).at("grid_fnv1a").get<uint64_t>()) << name;
  };
  expect("IQ2_XXS", HashOf(kGridIQ2_XXS));
  expect("IQ2_XS", HashOf(kGridIQ2_XS));
  expect("IQ2_S", HashOf(kGridIQ2_S));
  expect("IQ3_XXS", HashOf(kGridIQ3_XXS));
  expect("IQ3_S", HashOf(kGridIQ3_S));
}

std::vector<float> RoundTrip(DType type, const std::vector<float>& x) {
  std::vector<std::byte> blocks(static_cast<size_t>(BytesOf(type, static_cast<int64_t>(x.size()))));
  QuantizeRow(type, x, blocks.data());
  std::vector<float> y(x.size());
  DequantizeRow(type, blocks.data(), y);
  return y;
}

TEST(Quants, QuantisingErrsByHalfAStepAtMost) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 64);
  for (float& v : x) v = normal(random);
  std::fill(x.begin(), x.begin() + 32, 0.0f);
  EXPECT_EQ(RoundTrip(DType::kF32, x), x);
  const auto f16 = RoundTrip(DType::kF16, x), bf16 = RoundTrip(DType::kBF16, x);
  const auto q8 = RoundTrip(DType::kQ8_0, x), q4 = RoundTrip(DType::kQ4_0, x);
  for (size_t i = 0; i < x.size(); ++i) {
    float largest = 0;
    for (size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) largest = std::max(largest, std::abs(x[k]));
    ASSERT_NEAR(f16[i], x[i], 0x1p-11f * std::abs(x[i]) + 0x1p-25f);
    ASSERT_NEAR(bf16[i], x[i], 0x1p-8f * std::abs(x[i]));
    // Half a step, plus the fp16 rounding of the step.
    ASSERT_NEAR(q8[i], x[i], largest * (0.5f / 127 + 0x1p-11f) * 1.001f);
    // A value opposite to the extreme one can be a whole step beyond the last code.
    ASSERT_NEAR(q4[i], x[i], largest * (1.0f / 8 + 0x1p-11f) * 1.001f);
  }
}

TEST(Quants, QuantisedBytesAreThoseOfTheDefinition) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127;
  x[1] = -63.5f;  // halfway: rounds away from zero
  x[2] = 1.4f;
  std::array<std::byte, 34> q8;
  QuantizeRow(DType::kQ8_0, x, q8.data());
  const auto code = [&](int i) { return static_cast<int>(static_cast<int8_t>(q8[2 + i])); };
  EXPECT_EQ(static_cast<int>(q8[0]) | static_cast<int>(q8[1]) << 8, 0x3C00);  // d = 1
  EXPECT_EQ(code(0), 127);
  EXPECT_EQ(code(1), -64);
  EXPECT_EQ(code(2), 1);

  x.assign(32, 0.0f);
  x[5] = -16;  // d = 2
  x[21] = 5.1f;
  std::array<std::byte, 18> q4;
  QuantizeRow(DType::kQ4_0, x, q4.data());
  EXPECT_EQ(static_cast<int>(q4[0]) | static_cast<int>(q4[1]) << 8, 0x4000);
  EXPECT_EQ(static_cast<int>(q4[2 + 5]), 11 << 4 | 0);  // 5.1 / 2 + 8.5 = 11.05, -16 / 2 + 8.5 = 0.5
  EXPECT_EQ(static_cast<int>(q4[2 + 0]), 8 << 4 | 8);
}

// gguf-py 0.19's bytes for the same values.
TEST(Quants, Mxfp4IsThatOfLlamaCpp) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(i * 37 % 29 - 14) / 8 * (i % 5 == 0 ? 3.0f : 1.0f);
  const std::array<unsigned, 17> wanted = {127, 15, 25,  48, 162, 27,  42,  177, 147,
                                           26,  96, 165, 11, 41,  177, 195, 14};
  std::array<std::byte, 17> block;
  QuantizeRow(DType::kMXFP4, x, block.data());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(static_cast<unsigned>(block[i]), wanted[i]) << i;
  EXPECT_EQ(RoundTrip(DType::kMXFP4, std::vector<float>(32, 0.0f)), std::vector<float>(32, 0.0f));
  for (const float v : {1e-38f, 6.0f, -3e38f})  // the smallest exponent, an exact value, and the largest
    EXPECT_NEAR(RoundTrip(DType::kMXFP4, std::vector<float>(32, v))[31], v, std::abs(v) / 4) << v;
}

TEST(Quants, TinyAndHugeValuesAndNonFiniteOnes) {
  const std::vector<float> tiny(32, std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(RoundTrip(DType::kQ8_0, tiny), std::vector<float>(32, 0.0f));
  EXPECT_EQ(RoundTrip(DType::kQ4_0, tiny), std::vector<float>(32, 0.0f));
  std::vector<std::byte> blocks(64);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(QuantizeRow(DType::kQ8_0, std::vector<float>(32, bad), blocks.data()), Error);
    EXPECT_THROW(QuantizeRow(DType::kQ4_0, std::vector<float>(32, bad), blocks.data()), Error);
    EXPECT_THROW(QuantizeRow(DType::kMXFP4, std::vector<float>(32, bad), blocks.data()), Error);
  }
}

TEST(Quants, OtherTypesCannotBeWritten) {
  std::vector<std::byte> blocks(256);
  EXPECT_THROW(QuantizeRow(DType::kQ4_K, std::vector<float>(256), blocks.data()), Error);
  EXPECT_THROW(QuantizeRow(DType::kQ5_1, std::vector<float>(32), blocks.data()), Error);
  EXPECT_EQ(ErrorOf([&] { QuantizeRow(DType::kIQ3_S, std::vector<float>(256), blocks.data()); }),
            "[quants] cannot quantise to IQ3_S");
}

TEST(Quants, HalfABlockIsAProgrammersError) {
  std::vector<std::byte> blocks(64);
  std::vector<float> y(16);
  EXPECT_THROW(DequantizeRow(DType::kQ8_0, blocks.data(), y), CheckFailure);
  EXPECT_THROW(QuantizeRow(DType::kQ8_0, y, blocks.data()), CheckFailure);
}

}  // namespace
}  // namespace coppice
