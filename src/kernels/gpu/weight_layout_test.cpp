// The layouts of kernels/README.md hold the values of the file, exactly.
#include "kernels/gpu/weight_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "formats/quants.h"
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using gpu::LayoutOf;
using gpu::WeightLayout;
using testing_kernels::RandomWeight;

template <typename T>
T At(const std::vector<std::byte>& packed, const WeightLayout::Array& array, int64_t row, int64_t i) {
  T value;
  std::memcpy(&value,
              packed.data() + array.offset + row * array.row_bytes + i * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// Value c of a row, by the formulas of the README, in the order of operations of formats/quants.cpp.
float ValueAt(const std::vector<std::byte>& packed, const WeightLayout& l, int64_t row, int64_t c) {
  if (l.bits == 16) return ToFloat(At<BF16>(packed, l.codes, row, c));
  const int byte = At<uint8_t>(packed, l.codes, row, l.bits == 4 ? c / 2 : c);
  const int code = l.bits == 4 ? byte >> (c % 2 * 4) & 15 : static_cast<int8_t>(byte);
  const float centred = static_cast<float>(code) - l.zero;
  const float d = ToFloat(At<F16>(packed, l.scales, row, l.super ? c / 256 : c / 32));
  const float m = l.minima ? ToFloat(At<F16>(packed, l.mins, row, l.super ? c / 256 : c / 32)) : 0;
  if (!l.super) return d * centred + m;
  const float scale = d * static_cast<float>(At<int8_t>(packed, l.groups, row, c / l.group));
  const float minimum =
      l.minima ? m * static_cast<float>(At<uint8_t>(packed, l.group_mins, row, c / l.group)) : 0;
  return scale * centred - minimum;
}

// Whether the layout's factors are the file's times a power of two below 1.
bool RoundsFactor(DType type) { return type >= DType::kIQ2_XXS && type != DType::kIQ3_S; }

class WeightLayoutTest : public testing::TestWithParam<DType> {};

TEST_P(WeightLayoutTest, HoldsTheValuesOfTheFile) {
  const DType type = GetParam();
  for (const int64_t cols : {256, 768}) {
    const Tensor w = RandomWeight(type, 5, cols, 7);
    const WeightLayout layout = LayoutOf(type, w.rows(), w.cols());
    std::vector<std::byte> packed(static_cast<size_t>(layout.bytes));
    gpu::Repack(w.view(), layout, packed);
    std::vector<float> expected(static_cast<size_t>(cols));
    for (int64_t row = 0; row < w.rows(); ++row) {
      DequantizeRow(type, w.view().RowBytes(row), expected);
      for (int64_t c = 0; c < cols; ++c) {
        const float value = expected[static_cast<size_t>(c)];
        // Only plain weights are rounded, to bf16; and factors below 2^-14, which lose bits.
        const float rounding = RoundsFactor(type) ? 0x1p-25f * 31 * 62 : 0;
        ASSERT_NEAR(ValueAt(packed, layout, row, c), layout.bits == 16 ? ToFloat(ToBF16(value)) : value,
                    rounding)
            << Info(type).name << " row " << row << " column " << c;
      }
    }
  }
}

TEST_P(WeightLayoutTest, PadsWithZeros) {
  const DType type = GetParam();
  const int64_t cols = Info(type).block_elements == 256 ? 256 : 160;
  const Tensor w = RandomWeight(type, 3, cols, 8);
  const WeightLayout layout = LayoutOf(type, w.rows(), w.cols());
  EXPECT_EQ(layout.rows, 128);
  EXPECT_EQ(layout.k, 256);
  std::vector<std::byte> packed(static_cast<size_t>(layout.bytes), std::byte{0xAA});
  gpu::Repack(w.view(), layout, packed);
  for (int64_t c = 0; c < layout.k; ++c) {
    // A scale of 0 makes a value 0 whatever the code.
    EXPECT_EQ(ValueAt(packed, layout, 3, c), 0) << "row 3 column " << c;
    if (c >= cols) {
      EXPECT_EQ(ValueAt(packed, layout, 0, c), 0) << "row 0 column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GpuTypes, WeightLayoutTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                         DType::kMXFP4, DType::kIQ4_XS, DType::kIQ2_XXS, DType::kIQ2_XS,
                                         DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S),
                         [](const auto& of) { return std::string(Info(of.param).name); });

}  // namespace
}  // namespace coppice
