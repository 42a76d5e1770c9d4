// Conversions of every half and every bfloat16, against the definition of the formats in fp64.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace coppice {
namespace {

// (-1)^sign * 1.mantissa * 2^(exponent - bias), with subnormals and infinities as in IEEE 754.
double Value(uint32_t bits, int mantissa_bits, int exponent_bits) {
  const int sign = (bits >> (mantissa_bits + exponent_bits)) & 1;
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value =
        mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
  }
  return sign != 0 ? -value : value;
}

struct Half {
  static constexpr int kMantissa = 10, kExponent = 5;
  static float Wide(uint16_t bits) { return ToFloat(F16{bits}); }
  static uint16_t Narrow(float f) { return ToF16(f).bits; }
};
struct Brain {
  static constexpr int kMantissa = 7, kExponent = 8;
  static float Wide(uint16_t bits) { return ToFloat(BF16{bits}); }
  static uint16_t Narrow(float f) { return ToBF16(f).bits; }
};

template <typename Format>
class ShortFloat : public ::testing::Test {};
using Formats = ::testing::Types<Half, Brain>;
TYPED_TEST_SUITE(ShortFloat, Formats);

TYPED_TEST(ShortFloat, EveryValueWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = TypeParam::Wide(static_cast<uint16_t>(bits));
    const double value = Value(bits, TypeParam::kMantissa, TypeParam::kExponent);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      const uint16_t back = TypeParam::Narrow(wide);
      ASSERT_TRUE(std::isnan(Value(back, TypeParam::kMantissa, TypeParam::kExponent))) << bits;
      continue;
    }
    ASSERT_EQ(wide, value) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000u) != 0) << bits;
    ASSERT_EQ(TypeParam::Narrow(wide), bits);
  }
}

TYPED_TEST(ShortFloat, BetweenNeighboursRoundsToNearestEven) {
  const uint32_t infinity = ((1u << TypeParam::kExponent) - 1) << TypeParam::kMantissa;
  const float top = std::numeric_limits<float>::infinity();
  for (uint32_t low = 0; low < infinity; ++low) {
    const double a = Value(low, TypeParam::kMantissa, TypeParam::kExponent);
    // The value after the largest would be 2^(largest exponent + 1). From halfway there, everything rounds to
    // infinity.
    const double b = low + 1 < infinity ? Value(low + 1, TypeParam::kMantissa, TypeParam::kExponent)
                                        : 2 * a - Value(low - 1, TypeParam::kMantissa, TypeParam::kExponent);
    const float middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(middle, (a + b) / 2) << low;  // exact in fp32
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(TypeParam::Narrow(s * middle), (even | sign)) << low;
      ASSERT_EQ(TypeParam::Narrow(s * std::nextafter(middle, 0.0f)), (low | sign)) << low;
      ASSERT_EQ(TypeParam::Narrow(s * std::nextafter(middle, top)), ((low + 1) | sign)) << low;
    }
  }
}

TYPED_TEST(ShortFloat,
           EveryNanStaysANan) {  // a payload in the truncated bits must not turn a NaN into infinity
  for (uint32_t payload : {1u, 0x1fffu, 0xffffu, 0x400000u, 0x7fffffu}) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t bits = TypeParam::Narrow(std::bit_cast<float>(sign | 0x7f800000u | payload));
      EXPECT_TRUE(std::isnan(Value(bits, TypeParam::kMantissa, TypeParam::kExponent))) << payload;
    }
  }
}

TEST(DType, BlockSizes) {
  EXPECT_EQ(BytesOf(DType::kF32, 7), 28);
  EXPECT_EQ(BytesOf(DType::kBF16, 7), 14);
  EXPECT_EQ(BytesOf(DType::kQ4_0, 64), 36);
  EXPECT_EQ(BytesOf(DType::kQ8_0, 32), 34);
  EXPECT_EQ(BytesOf(DType::kQ6_K, 512), 420);
  EXPECT_EQ(Info(DType::kQ3_K).name, "Q3_K");
}

}  // namespace
}  // namespace coppice
