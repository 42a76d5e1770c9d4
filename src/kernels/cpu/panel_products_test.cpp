// Integer products of quantised weights: bit for bit against the arithmetic of panel_kernels.h written as
// plain loops, and in accuracy against fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "avx_vnni_emulator.h"
#include "kernels/cpu/panel_products_test_support.h"

namespace coppice::panel_products_test {
namespace {

using namespace testing_panels;

class IntProducts : public IntProductsTest {};

constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};  // of each kind of panel

using ProductOf = std::function<Tensor(const TensorView& x, const TensorView& w, const TensorView& bias)>;

struct PanelShape {
  int64_t rows, inputs, outputs;
};

void ExpectStatedArithmetic(const ProductOf& product, const ProductOf& expected,
                            const std::vector<DType>& types, const std::vector<PanelShape>& shapes) {
  for (DType type : types) {
    for (const PanelShape& s : shapes) {
      if (s.inputs % Info(type).block_elements != 0) continue;
      SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(s.rows) + " x " +
                   std::to_string(s.inputs) + " x " + std::to_string(s.outputs));
      const Tensor x = Random(s.rows, s.inputs, 1);
      const Tensor w = RandomWeight(type, s.outputs, s.inputs, 2);
      const Tensor b = Random(1, s.outputs, 3);
      const TensorView bias = s.rows % 2 == 0 ? b.view() : TensorView();
      EXPECT_TRUE(SameBits(product(x.view(), w.view(), bias), expected(x.view(), w.view(), bias)));
    }
  }
  // The largest codes everywhere, whose pair sums exceed int16.
  for (float sign : {1.0f, -1.0f}) {
    Tensor x(DType::kF32, 7, 512);
    for (int64_t i = 0; i < 7; ++i) std::ranges::fill(x.mutable_view().Row<float>(i), sign);
    Tensor w(DType::kQ8_0, 20, 512);
    for (int64_t o = 0; o < 20; ++o) {
      QuantizeRow(DType::kQ8_0, std::vector<float>(512, o % 2 == 0 ? 1.0f : -1.0f),
                  w.mutable_view().RowBytes(o));
    }
    EXPECT_TRUE(SameBits(product(x.view(), w.view(), {}), expected(x.view(), w.view(), {}))) << sign;
  }
}

// Rows that are and are not multiples of blocks of 6, 24 and 64; columns likewise for strips and panels, K
// for groups of 32, 128 and 256.
TEST_P(IntProducts, AreTheStatedArithmeticBitForBit) {
  const auto product = [this](const TensorView& x, const TensorView& w, const TensorView& bias) {
    return Product(x, w, bias);
  };
  const auto expected = [](const TensorView& x, const TensorView& w, const TensorView& bias) {
    return GetParam().Expected(x, w, bias);
  };
  ExpectStatedArithmetic(
      product, expected,
      {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K, DType::kIQ4_NL,
       DType::kMXFP4, DType::kIQ4_XS, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS,
       DType::kIQ3_S},
      {{1, 64, 1}, {5, 96, 17}, {6, 256, 64}, {33, 512, 70}, {13, 1312, 130}, {40, 768, 48}, {389, 256, 33}});
}

// Rows so long that the tile kernels take fewer than 384 of them at a time.
TEST_P(IntProducts, LongRowsAreTheStatedArithmeticBitForBit) {
  const Tensor x = Random(150, 8192, 1);
  const Tensor w = RandomWeight(DType::kQ8_0, 70, 8192, 2);
  EXPECT_TRUE(SameBits(Product(x.view(), w.view()), Expected(x.view(), w.view(), {}, GetParam().group())));
}

// The same for bf16 tiles, which have their own order of summation: against fp64, and with different other
// rows.
TEST(TileProducts, LongRowsOfBf16) {
  if (!Cpu().avx512_bf16) GTEST_SKIP() << "this CPU lacks AVX-512 with bf16";
  InstallAmxEmulator();
  const std::unique_ptr<Backend> backend = MakeCpuBackendForIsa({.threads = 2, .exact = false}, Isa::kAmx);
  const Tensor x = Random(330, 4096, 1);
  const Tensor w = RandomWeight(DType::kBF16, 70, 4096, 2);
  PackedMatrix packed;
  backend->Pack(w.view(), packed);
  EXPECT_EQ(packed.scales.rows(), 0);
  Tensor y(DType::kF32, 330, 70);
  backend->Product(x.view(), packed, {}, y.mutable_view());
  double error = 0;
  double size = 0;
  std::vector<float> row(4096);
  for (int64_t o = 0; o < 70; ++o) {
    DequantizeRow(DType::kBF16, w.view().RowBytes(o), row);
    for (int64_t i = 0; i < 330; i += 7) {
      double sum = 0;
      for (size_t k = 0; k < row.size(); ++k) sum += double{x.view().Row<float>(i)[k]} * row[k];
      error += std::pow(sum - y.view().Row<float>(i)[static_cast<size_t>(o)], 2);
      size += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.004);  // rounding a factor has an error of at most 2^-9
  Tensor some(DType::kF32, 50, 70);
  backend->Product(x.view().Rows(240, 50), packed, {}, some.mutable_view());
  EXPECT_TRUE(SameBits(some, y.view().Rows(240, 50)));
}

// Runs the machine code for CPUs with AVX2 and AVX-VNNI in an emulator. Each emulated instruction takes
// microseconds, so there are few shapes.
TEST(AvxVnniProducts, AreTheStatedArithmeticBitForBit) {
  if (!Cpu().avx2) GTEST_SKIP() << "this CPU lacks AVX2";
  InstallAvxVnniEmulator();
  const ThreadPool pool(2);
  for (const bool fast : {false, true}) {
    const auto products = MakePanelProducts({cpu::Avx2Kernels(), pool}, cpu::AvxVnniPanels(fast));
    const auto product = [&](const TensorView& x, const TensorView& w, const TensorView& bias) {
      PackedMatrix packed;
      packed.inputs = w.cols;
      packed.outputs = w.rows;
      products->Pack(cpu::WeightRows(std::span(&w, 1)), packed);
      Tensor y(DType::kF32, x.rows, w.rows);
      products->Product(x, packed, bias, ProductEnd::kStore, y.mutable_view());
      return y;
    };
    const auto expected = [fast](const TensorView& x, const TensorView& w, const TensorView& bias) {
      return Expected(x, w, bias, fast ? cpu::kFastGroup : cpu::kVectorGroup);
    };
    ExpectStatedArithmetic(product, expected, {DType::kQ8_0}, {{1, 64, 1}, {5, 96, 17}, {26, 320, 70}});
  }
}

// Two roundings to 8 bits, each uniform within half a step of at most 4 sigma / 127: about 1 % of the
// result's deviation.
TEST_P(IntProducts, LoseAPercent) {
  const Tensor x = Random(64, 2048, 4);
  const Tensor w = RandomWeight(DType::kQ8_0, 96, 2048, 5);
  const Tensor y = Product(x.view(), w.view());
  std::vector<float> row(2048);
  double error = 0;
  double size = 0;
  for (int64_t o = 0; o < 96; ++o) {
    DequantizeRow(DType::kQ8_0, w.view().RowBytes(o), row);
    for (int64_t i = 0; i < 64; ++i) {
      double sum = 0;
      for (size_t k = 0; k < row.size(); ++k) sum += double{x.view().Row<float>(i)[k]} * row[k];
      error += std::pow(sum - y.view().Row<float>(i)[static_cast<size_t>(o)], 2);
      size += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.015);
  EXPECT_GT(std::sqrt(error / size), 0.001) << "no integers at work";
}

TEST_P(IntProducts, AnOutlierCostsItsGroupAlone) {
  Tensor x = Random(1, 512, 6);
  const Tensor w = RandomWeight(DType::kQ8_0, 16, 512, 7);
  const Tensor before = Product(x.view().Cols(256, 256), w.view().Cols(256, 256));
  x.mutable_view().Row<float>(0)[3] = 1e6f;
  Tensor zeros = Tensor::Zeros(DType::kF32, 1, 512);
  const auto row = x.view().Row<float>(0);
  std::copy(row.begin() + 256, row.end(), zeros.mutable_view().Row<float>(0).begin() + 256);
  EXPECT_TRUE(SameBits(Product(zeros.view(), w.view()), before.view()));
}

// One value of a group becomes the same code, the largest, everywhere: the largest sums that there are.
TEST_P(IntProducts, TheLargestSumsAreExact) {
  Tensor x = Tensor::Zeros(DType::kF32, 8, 512);
  Tensor w = Tensor::Zeros(DType::kF32, 20, 512);
  for (size_t k = 0; k < 512; k += GetParam().group()) {
    for (int64_t i = 0; i < 8; ++i) x.mutable_view().Row<float>(i)[k] = i % 2 == 0 ? 1.0f : -1.0f;
    for (int64_t o = 0; o < 20; ++o) w.mutable_view().Row<float>(o)[k] = o % 3 == 0 ? -1.0f : 1.0f;
  }
  Tensor codes(DType::kQ8_0, 20, 512);
  for (int64_t o = 0; o < 20; ++o)
    QuantizeRow(DType::kQ8_0, w.view().Row<float>(o), codes.mutable_view().RowBytes(o));
  const Tensor y = Product(x.view(), codes.view());
  EXPECT_TRUE(SameBits(y, Expected(x.view(), codes.view(), {}, GetParam().group())));
  EXPECT_NEAR(y.view().Row<float>(0)[1], 512.0f / static_cast<float>(GetParam().group()), 0.02f);
}

// kSumBase times a scale has to be finite.
TEST_P(IntProducts, OfHugeValuesAreRightOrNotFinite) {
  for (DType type : kTypes) {
    const Tensor w = RandomWeight(type, 20, 512, 8);
    const Tensor small = Random(2, 512, 9);
    const Tensor y = Product(small.view(), w.view());
    for (int exponent : {60, 90, 100, 118, 120}) {
      Tensor x = Random(2, 512, 9);
      for (float& v : x.mutable_view().Row<float>(1)) v = std::ldexp(v, exponent);
      const Tensor huge = Product(x.view(), w.view());
      EXPECT_TRUE(SameBits(huge.view().Rows(0, 1), y.view().Rows(0, 1)));
      for (size_t o = 0; o < 20; ++o) {
        const float v = huge.view().Row<float>(1)[o];
        if (exponent <= 100) {
          EXPECT_EQ(v, std::ldexp(y.view().Row<float>(1)[o], exponent));
        } else {
          EXPECT_FALSE(std::isfinite(v)) << v;
        }
      }
    }
  }
}

TEST_P(IntProducts, WhatIsNotFiniteStaysVisible) {
  for (DType type : kTypes) {
    const Tensor w = RandomWeight(type, 20, 512, 8);
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Tensor x = Random(3, 512, 9);
      const Tensor before = Product(x.view(), w.view());
      x.mutable_view().Row<float>(1)[300] = bad;
      const Tensor y = Product(x.view(), w.view());
      for (float v : y.view().Row<float>(1)) EXPECT_TRUE(std::isnan(v));
      EXPECT_TRUE(SameBits(y.view().Rows(0, 1), before.view().Rows(0, 1)));
      EXPECT_TRUE(SameBits(y.view().Rows(2, 1), before.view().Rows(2, 1)));
    }
  }
}

TEST_P(IntProducts, ZerosAreZeros) {
  for (DType type : kTypes) {
    const Tensor w = RandomWeight(type, 20, 512, 8);
    const Tensor x = Tensor::Zeros(DType::kF32, 7, 512);
    const Tensor y = Product(x.view(), w.view());
    for (int64_t i = 0; i < 7; ++i) {
      for (float v : y.view().Row<float>(i)) EXPECT_EQ(v, 0.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, IntProducts, ::testing::ValuesIn(kPanelKernels), KernelsName);

}  // namespace
}  // namespace coppice::panel_products_test
