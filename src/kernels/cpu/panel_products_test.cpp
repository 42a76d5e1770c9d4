// Integer products of quantised weights: bit for bit against the arithmetic of panel_kernels.h written as
// plain loops, and in accuracy against fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "amx_emulator.h"
#include "avx_vnni_emulator.h"
#include "formats/quants.h"
#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/products.h"

namespace coppice {
namespace {

using testing_kernels::Random;
using testing_kernels::RandomWeight;
using testing_kernels::SameBits;

struct Codes {
  std::vector<int> codes;
  std::vector<float> scales;  // by group
};

// The sign of value i in a rotated block.
float SignOf(size_t i, size_t values) {
  if (values <= 32) return 1;
  int pairs = 0;
  for (size_t bit = 1; bit < values; bit *= 4) pairs += (i & bit) != 0 && (i & (2 * bit)) != 0;
  return pairs % 2 == 0 ? 1.0f : -1.0f;
}

// x = H S x in blocks of `values`, the rest in powers of two.
void Rotate(std::span<float> x, size_t values) {
  while (x.size() >= values) {
    for (size_t i = 0; i < values; ++i) x[i] *= SignOf(i, values);
    for (size_t stride = values / 2; stride > 0; stride /= 2) {
      for (size_t i = 0; i < values; ++i) {
        if ((i & stride) != 0) continue;
        const float a = x[i];
        const float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
    x = x.subspan(values);
  }
  if (!x.empty()) Rotate(x, values / 2);
}

// The factor by which Rotate multiplies the product of two rows at value k.
float FactorAt(size_t k, size_t count, size_t values) {
  const size_t whole = count / values * values;
  return k < whole ? static_cast<float>(values) : FactorAt(k - whole, count - whole, values / 2);
}

// `steps`: of each 32 values, 0 where there is none; empty where they do not count.
Codes Quantize(std::span<const float> row, size_t values, bool is_weight, std::span<const float> steps = {}) {
  std::vector<float> x(row.begin(), row.end());
  x.resize(static_cast<size_t>(cpu::PanelDepth(static_cast<int64_t>(x.size()))));
  Rotate(x, values);
  if (is_weight) {
    for (size_t k = 0; k < x.size(); ++k) x[k] /= FactorAt(k, x.size(), values);
  }
  Codes q;
  for (size_t begin = 0; begin < x.size(); begin += values) {
    const auto group = std::span(x).subspan(begin, std::min(values, x.size() - begin));
    float largest = 0;
    for (float v : group) largest = std::max(largest, std::abs(v));
    float scale = largest / 127.0f;
    float inverse = largest == 0 ? 0 : 127.0f / largest;
    if (begin / values < steps.size() && largest > 0) {
      const float step = steps[begin / values] / 32.0f;
      if (step != 0 && largest <= 127.4f * std::abs(step)) {
        scale = step;
        inverse = 1.0f / step;
      }
    }
    q.scales.push_back(scale);
    for (float v : group) q.codes.push_back(static_cast<int>(std::nearbyint(v * inverse)));
  }
  return q;
}

// The steps of the stored codes of 32 values each, written from the layouts (formats/quant_blocks.h).
std::vector<float> StepsOf(const TensorView& w, int64_t row) {
  std::vector<float> steps(static_cast<size_t>(w.cols / 32), 0.0f);
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t value = static_cast<int64_t>(i) * 32;
    const std::byte* block = w.RowBytes(row) + BytesOf(w.dtype, value / Info(w.dtype).block_elements *
                                                                    Info(w.dtype).block_elements);
    F16 d;
    std::memcpy(&d, block, sizeof d);
    if (w.dtype == DType::kQ6_K) continue;
    steps[i] = ToFloat(d);
    if (w.dtype != DType::kQ4_K) continue;
    const auto* scales = reinterpret_cast<const uint8_t*>(block) + 4;
    const size_t j = i % 8;
    const int scale = j < 4 ? scales[j] & 63 : (scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4);
    steps[i] *= static_cast<float>(scale);
  }
  return steps;
}

Tensor Expected(const TensorView& x, const TensorView& w, const TensorView& bias, size_t values) {
  std::vector<Codes> rows(static_cast<size_t>(x.rows));
  for (int64_t i = 0; i < x.rows; ++i)
    rows[static_cast<size_t>(i)] = Quantize(x.Row<float>(i), values, false);
  Tensor y(DType::kF32, x.rows, w.rows);
  std::vector<float> weights(static_cast<size_t>(w.cols));
  for (int64_t o = 0; o < w.rows; ++o) {
    DequantizeRow(w.dtype, w.RowBytes(o), weights);
    const std::vector<float> steps = values == 32 ? StepsOf(w, o) : std::vector<float>();
    const Codes column = Quantize(weights, values, true, steps);
    for (int64_t i = 0; i < x.rows; ++i) {
      const Codes& row = rows[static_cast<size_t>(i)];
      float sum = 0;
      for (size_t g = 0; g < column.scales.size(); ++g) {
        int32_t exact = 0;
        for (size_t k = g * values; k < std::min(column.codes.size(), (g + 1) * values); ++k) {
          exact += row.codes[k] * column.codes[k];
        }
        sum = std::fma(static_cast<float>(exact), column.scales[g] * row.scales[g], sum);
      }
      y.mutable_view().Row<float>(i)[static_cast<size_t>(o)] =
          bias.empty() ? sum : sum + bias.Row<float>(0)[static_cast<size_t>(o)];
    }
  }
  return y;
}

using ProductOf = std::function<Tensor(const TensorView& x, const TensorView& w, const TensorView& bias)>;

struct Shape {
  int64_t rows, inputs, outputs;
};

void ExpectStatedArithmetic(const ProductOf& product, size_t group, const std::vector<DType>& types,
                            const std::vector<Shape>& shapes) {
  for (DType type : types) {
    for (const Shape& s : shapes) {
      if (s.inputs % Info(type).block_elements != 0) continue;
      SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(s.rows) + " x " +
                   std::to_string(s.inputs) + " x " + std::to_string(s.outputs));
      const Tensor x = Random(s.rows, s.inputs, 1);
      const Tensor w = RandomWeight(type, s.outputs, s.inputs, 2);
      const Tensor b = Random(1, s.outputs, 3);
      const TensorView bias = s.rows % 2 == 0 ? b.view() : TensorView();
      EXPECT_TRUE(SameBits(product(x.view(), w.view(), bias), Expected(x.view(), w.view(), bias, group)));
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
    EXPECT_TRUE(SameBits(product(x.view(), w.view(), {}), Expected(x.view(), w.view(), {}, group))) << sign;
  }
}

struct Kernels {
  Isa isa;
  bool fast = false;

  size_t group() const {
    return isa == Isa::kAmx ? cpu::kTileGroup : fast ? cpu::kFastGroup : cpu::kVectorGroup;
  }
};

void PrintTo(const Kernels& k, std::ostream* out) { *out << IsaName(k.isa) << (k.fast ? "_fast" : ""); }

class IntProducts : public ::testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override {
    const Isa isa = GetParam().isa;
    const bool can = isa == Isa::kAvx2  ? Cpu().avx2
                     : isa == Isa::kAmx ? Cpu().avx512_bf16
                                        : Cpu().avx512_vnni;
    if (!can) GTEST_SKIP() << "this CPU lacks " << IsaName(isa) << " or VNNI";
    if (isa == Isa::kAmx) InstallAmxEmulator();
    backend_ = MakeCpuBackendForIsa({.threads = 2, .exact = false, .fast = GetParam().fast}, isa);
  }
  Tensor Product(const TensorView& x, const TensorView& w, const TensorView& bias = {}) {
    PackedMatrix packed;
    backend_->Pack(w, packed);
    EXPECT_GT(packed.scales.rows(), 0) << "not integers";
    Tensor y(DType::kF32, x.rows, w.rows);
    backend_->Product(x, packed, bias, y.mutable_view());
    return y;
  }
  std::unique_ptr<Backend> backend_;
};

// Rows that are and are not multiples of blocks of 6, 24 and 64; columns likewise for strips and panels, K
// for groups of 32, 128 and 256.
TEST_P(IntProducts, AreTheStatedArithmeticBitForBit) {
  const auto product = [this](const TensorView& x, const TensorView& w, const TensorView& bias) {
    return Product(x, w, bias);
  };
  ExpectStatedArithmetic(
      product, GetParam().group(), {DType::kQ8_0, DType::kQ4_0, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K},
      {{1, 64, 1}, {5, 96, 17}, {6, 256, 64}, {33, 512, 70}, {13, 1312, 130}, {40, 768, 48}, {389, 256, 33}});
}

// Blocks of Q4_0 whose rotated codes do and do not fit into a byte, by one: all codes alike, alternating, and
// at random with few or no others; steps of either sign, tiny, and zero.
TEST_P(IntProducts, BlocksOfQ4_0AtTheEdgesAreTheStatedArithmetic) {
  constexpr int64_t kInputs = 288;  // not a multiple of 64
  const Tensor x = Random(9, kInputs, 12);
  Tensor w(DType::kQ4_0, 70, kInputs);
  std::mt19937 random(13);
  const float steps[] = {0.01f, -0.01f, 6e-8f, -6e-8f, 0.0f, 3.0f, 60000.0f};
  for (int64_t o = 0; o < w.rows(); ++o) {
    for (int64_t b = 0; b < kInputs / 32; ++b) {
      std::byte* block = w.mutable_view().RowBytes(o) + b * 18;
      const F16 step = ToF16(steps[random() % std::size(steps)]);
      std::memcpy(block, &step, sizeof step);
      const unsigned low = random() % 16;
      const unsigned high = random() % 16;
      const unsigned others = random() % 20;  // of 256 bytes that differ
      for (int i = 0; i < 16; ++i) {
        const unsigned byte = random() % 256 < others * others ? random() % 256 : low | high << 4;
        block[2 + i] = static_cast<std::byte>(byte);
      }
    }
  }
  EXPECT_TRUE(SameBits(Product(x.view(), w.view()), Expected(x.view(), w.view(), {}, GetParam().group())));
  // A step that is not finite shows in its row of weights, and in no other.
  const Tensor before = Product(x.view(), w.view());
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const F16 step = ToF16(bad);
    std::memcpy(w.mutable_view().RowBytes(17) + 36, &step, sizeof step);
    const Tensor y = Product(x.view(), w.view());
    for (int64_t i = 0; i < y.rows(); ++i) {
      for (int64_t o = 0; o < y.cols(); ++o) {
        const float v = y.view().Row<float>(i)[static_cast<size_t>(o)];
        if (o == 17) {
          EXPECT_TRUE(std::isnan(v));
        } else {
          EXPECT_EQ(v, before.view().Row<float>(i)[static_cast<size_t>(o)]);
        }
      }
    }
  }
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
  const auto products = MakePanelProducts({cpu::Avx2Kernels(), pool}, cpu::AvxVnniPanels(false));
  const auto product = [&](const TensorView& x, const TensorView& w, const TensorView& bias) {
    PackedMatrix packed;
    packed.inputs = w.cols;
    packed.outputs = w.rows;
    products->Pack(cpu::WeightRows(std::span(&w, 1)), packed);
    Tensor y(DType::kF32, x.rows, w.rows);
    products->Product(x, packed, bias, ProductEnd::kStore, y.mutable_view());
    return y;
  };
  ExpectStatedArithmetic(product, cpu::kVectorGroup, {DType::kQ8_0},
                         {{1, 64, 1}, {5, 96, 17}, {26, 320, 70}});
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

TEST_P(IntProducts, WhatIsNotFiniteStaysVisible) {
  const Tensor w = RandomWeight(DType::kQ8_0, 20, 512, 8);
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

TEST_P(IntProducts, ZerosAreZeros) {
  const Tensor w = RandomWeight(DType::kQ8_0, 20, 512, 8);
  const Tensor x = Tensor::Zeros(DType::kF32, 7, 512);
  const Tensor y = Product(x.view(), w.view());
  for (int64_t i = 0; i < 7; ++i) {
    for (float v : y.view().Row<float>(i)) EXPECT_EQ(v, 0.0f);
  }
}

// Only x is rounded: blocks of 4 bits keep their codes. The rounding of x alone is half a percent.
TEST_P(IntProducts, StoredCodesOfFourBitsLoseNothing) {
  if (GetParam().group() != 32) GTEST_SKIP() << "groups are not blocks";
  for (DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
    // Rows of x that rotate to integers of at most 127, which int8 codes hold exactly.
    Tensor x = Tensor::Zeros(DType::kF32, 9, 512);
    for (int64_t i = 0; i < 9; ++i) {
      for (size_t k = 0; k < 512; k += 32)
        x.mutable_view().Row<float>(i)[k + static_cast<size_t>(i) * 3] = 127;
    }
    const Tensor w = RandomWeight(type, 40, 512, 11);
    const Tensor y = Product(x.view(), w.view());
    std::vector<float> row(512);
    double error = 0;
    double size = 0;
    for (int64_t o = 0; o < 40; ++o) {
      DequantizeRow(type, w.view().RowBytes(o), row);
      for (int64_t i = 0; i < 9; ++i) {
        double sum = 0;
        for (size_t k = 0; k < 512; ++k) sum += double{x.view().Row<float>(i)[k]} * row[k];
        error += std::pow(sum - y.view().Row<float>(i)[static_cast<size_t>(o)], 2);
        size += sum * sum;
      }
    }
    // Q4_1 and Q4_K round one value of 32, their minimum's.
    EXPECT_LT(std::sqrt(error / size), type == DType::kQ4_0 ? 1e-6 : 0.02) << Info(type).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, IntProducts,
                         ::testing::Values(Kernels{Isa::kAvx2}, Kernels{Isa::kAvx512}, Kernels{Isa::kAmx},
                                           Kernels{Isa::kAvx2, true}, Kernels{Isa::kAvx512, true}),
                         [](const auto& test) {
                           return std::string(IsaName(test.param.isa)) + (test.param.fast ? "_fast" : "");
                         });

}  // namespace
}  // namespace coppice
