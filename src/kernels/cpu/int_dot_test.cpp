// Integer products of quantised weights: against fp64 on the same codes, against fp32 within the rounding
// error of x, and bit for bit between instruction sets.
#include "kernels/cpu/int_dot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/int_dot_test_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;
using namespace testing_int_dots;
const std::vector<DotLayout> kLayouts = {DotLayout::kSuper, DotLayout::kSums, DotLayout::kLess8,
                                         DotLayout::kLess16, DotLayout::kLess128};
const std::vector<int64_t> kCounts = {32, 64, 96, 224, 256, 288, 512, 544, 768, 2048};

// A value of x as the products read it.
struct Code {
  int code;
  float scale;
  double value() const { return static_cast<double>(code) * scale; }
};

Code CodeAt(const std::vector<DotGroup>& groups, DotLayout layout, size_t k) {
  const DotGroup& group = groups[k / kDotGroup];
  const size_t in_group = k % kDotGroup;
  const size_t block = in_group / kDotBlock;
  size_t at = in_group;
  if (layout != DotLayout::kSuper) at = block % 4 * 64 + in_group % 32 / 16 * 32 + block / 4 * 16 + k % 16;
  return {group.codes[at], layout == DotLayout::kSuper ? group.scale : group.scales[block]};
}

int64_t ValuesPerScale(DotLayout layout) { return layout == DotLayout::kSuper ? kDotGroup : kDotBlock; }

// Every row must be within 1e-6 of the sum of magnitudes, the error of a few dozen fp32 additions.
void ExpectDots(const IntDotKernels& kernels, const Tensor& w, std::span<const float> row,
                const float* bias) {
  const DotLayout layout = kernels.layout[static_cast<size_t>(w.dtype())];
  const std::vector<DotGroup> x = Quantised(kernels, row, layout);
  const std::vector<float> y = Dots(kernels, w.view(), row, bias);
  const Matrix weights = ToMatrix(w.view());
  for (size_t o = 0; o < weights.size(); ++o) {
    double sum = bias == nullptr ? 0 : bias[o];
    double magnitude = std::abs(sum);
    for (size_t k = 0; k < weights[o].size(); ++k) {
      const double product = weights[o][k] * CodeAt(x, layout, k).value();
      sum += product;
      magnitude += std::abs(product);
    }
    ASSERT_NEAR(y[o], sum, 1e-6 * magnitude) << "row " << o;
  }
}

// The largest magnitude among the values that share value k's scale.
float LargestBeside(std::span<const float> row, DotLayout layout, size_t k) {
  const auto size = static_cast<size_t>(ValuesPerScale(layout));
  float most = 0;
  for (size_t i = k / size * size; i < std::min(row.size(), k / size * size + size); ++i) {
    most = std::max(most, std::abs(row[i]));
  }
  return most;
}

TEST(IntDot, CodesAreTheNearest) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DotLayout layout : kLayouts) {
      for (int64_t count : kCounts) {
        Tensor x = Random(1, count, 7);
        x.mutable_view().Row<float>(0)[static_cast<size_t>(count) - 1] = -9;  // the largest of its group
        const std::span<const float> row = x.view().Row<float>(0);
        const std::vector<DotGroup> groups = Quantised(*kernels, row, layout);
        for (size_t k = 0; k < groups.size() * kDotGroup; ++k) {
          const Code code = CodeAt(groups, layout, k);
          if (k >= row.size()) {
            ASSERT_EQ(code.code, 0) << k;
            continue;
          }
          ASSERT_NEAR(code.code, row[k] / code.scale, 0.5001) << k;
          ASSERT_EQ(code.scale, LargestBeside(row, layout, k) / 127) << k;
        }
        ASSERT_EQ(CodeAt(groups, layout, row.size() - 1).code, -127);
      }
    }
  }
}

TEST(IntDot, SumsAreThoseOfTheCodes) {
  const Tensor x = Random(1, 288, 13);
  const std::span<const float> row = x.view().Row<float>(0);
  for (const IntDotKernels* kernels : Tables()) {
    for (size_t g = 0; g < 2; ++g) {
      std::array<int, 16> halves = {};
      const DotGroup super = Quantised(*kernels, row, DotLayout::kSuper)[g];
      for (size_t k = 0; k < kDotGroup; ++k) halves[k / 32 + (k % 32 < 16 ? 0 : 8)] += super.codes[k];
      for (size_t j = 0; j < 16; ++j) ASSERT_EQ(super.sums[j], halves[j]) << j;
      for (DotLayout layout :
           {DotLayout::kSums, DotLayout::kLess8, DotLayout::kLess16, DotLayout::kLess128}) {
        const std::vector<DotGroup> groups = Quantised(*kernels, row, layout);
        std::array<int, 8> blocks = {};
        for (size_t k = 0; k < kDotGroup; ++k)
          blocks[k / 32] += CodeAt(groups, layout, g * kDotGroup + k).code;
        const int less = layout == DotLayout::kLess8 ? 8 : layout == DotLayout::kLess16 ? 16 : 128;
        for (size_t j = 0; j < 8; ++j) {
          if (layout == DotLayout::kSums) {
            ASSERT_EQ(groups[g].block_sums[j], static_cast<float>(blocks[j])) << j;
          } else {
            ASSERT_EQ(groups[g].block_starts[j], -less * blocks[j]) << j;
          }
        }
      }
    }
  }
}

TEST(IntDot, HalvesRoundToEven) {
  std::vector<float> x(32);
  x[0] = 127;  // gives scale 1
  x[1] = 2.5f, x[2] = 3.5f, x[3] = -2.5f, x[4] = -0.5f;
  for (const IntDotKernels* kernels : Tables()) {
    const DotGroup group = Quantised(*kernels, x, DotLayout::kSums).front();
    const std::vector<int> codes(group.codes, group.codes + 5);
    EXPECT_EQ(codes, (std::vector<int>{127, 2, 4, -2, 0}));
  }
}

TEST(IntDot, ZerosTinyAndNotFiniteRows) {
  for (const IntDotKernels* kernels : Tables()) {
    for (float value : {0.0f, 1e-40f, 1e-36f}) {
      for (DotLayout layout : kLayouts) {
        const DotGroup group = Quantised(*kernels, std::vector<float>(512, value), layout).front();
        for (int8_t code : group.codes) EXPECT_GE(code, 0) << value;  // no intermediate overflow
      }
    }
    // One type for every layout.
    for (DType type : {DType::kQ4_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K}) {
      const Tensor w = RandomBlocks(type, 3, 512, 1);
      for (float value : {0.0f, 1e-40f, 1e-36f}) {
        const std::vector<float> x(512, value);
        for (float y : Dots(*kernels, w.view(), x)) EXPECT_TRUE(std::abs(y) < 1e-30f) << value;
      }
      for (float value : {std::nanf(""), INFINITY, -INFINITY}) {
        for (size_t at : {0u, 17u, 300u, 511u}) {
          std::vector<float> x(512, 1.0f);
          x[at] = value;
          for (float y : Dots(*kernels, w.view(), x)) EXPECT_TRUE(std::isnan(y)) << value << " " << at;
        }
      }
    }
  }
}

TEST(IntDot, EveryTypeAndLengthMatchesFp64OnTheSameCodes) {
  const Tensor bias = Random(1, 9, 3);
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kQuantised) {
      for (int64_t count : kCounts) {
        if (count % Info(type).block_elements != 0) continue;
        SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(count));
        const Tensor row = Random(1, count, 5);
        const std::span<const float> x = row.view().Row<float>(0);
        const Tensor w = RandomBlocks(type, 9, count, 6);
        const float* b = count % 512 == 0 ? bias.view().Row<float>(0).data() : nullptr;
        ExpectDots(*kernels, w, x, b);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The largest codes and scales, with x of either sign: 16-bit sums of pairs must not saturate.
TEST(IntDot, ExtremeCodesAreExact) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kQuantised) {
      for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
        for (float sign : {1.0f, -1.0f}) {
          SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(byte));
          Tensor w = RandomBlocks(type, 2, 512, 8);
          const Tensor factors = w.Clone();
          std::memset(w.mutable_view().data, byte, static_cast<size_t>(w.bytes()));
          const bool late = type == DType::kQ2_K || type == DType::kQ3_K || type == DType::kQ6_K;
          const bool two = type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ2_K ||
                           type == DType::kQ4_K || type == DType::kQ5_K;
          const int64_t bytes = two ? 4 : type == DType::kMXFP4 ? 1 : 2;
          const int64_t block_bytes = Info(type).block_bytes;
          for (int64_t b = late ? block_bytes - bytes : 0; b < w.bytes(); b += block_bytes) {
            std::memcpy(w.mutable_view().data + b, factors.view().data + b, static_cast<size_t>(bytes));
          }
          const std::vector<float> x(512, sign);
          ExpectDots(*kernels, w, x, nullptr);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Rounding changes a value of x by at most half a step of its group, so a product by at most |w| times that.
TEST(IntDot, DecodeProductsStayWithinWhatRoundingMayDo) {
  const std::unique_ptr<Backend> reference = MakeBackend("reference", {});
  const std::unique_ptr<Backend> cpu = MakeBackendOrSkip("cpu", {.threads = 2, .exact = false});
  if (!cpu) GTEST_SKIP() << "this CPU lacks the instruction set that COPPICE_ISA names";
  const Tensor x = Random(3, 1280, 11);
  for (DType type : kQuantised) {
    const bool by_block = Info(type).block_elements == kDotBlock || type == DType::kIQ4_XS;
    const DotLayout layout = by_block ? DotLayout::kSums : DotLayout::kSuper;
    const Tensor w = RandomBlocks(type, 40, 1280, 12);
    Tensor want(DType::kF32, 3, 40);
    Tensor got(DType::kF32, 3, 40);
    reference->DecodeProduct(x.view(), w.view(), {}, want.mutable_view());
    cpu->DecodeProduct(x.view(), w.view(), {}, got.mutable_view());
    const Matrix weights = ToMatrix(w.view());
    for (int64_t i = 0; i < 3; ++i) {
      const std::span<const float> row = x.view().Row<float>(i);
      std::vector<double> half_step;
      for (size_t k = 0; k < row.size(); ++k) half_step.push_back(LargestBeside(row, layout, k) / 127 / 2);
      for (size_t o = 0; o < weights.size(); ++o) {
        double allowed = 0;
        for (size_t k = 0; k < row.size(); ++k) allowed += std::abs(weights[o][k]) * half_step[k];
        ASSERT_NEAR(got.view().Row<float>(i)[o], want.view().Row<float>(i)[o], 1.0001 * allowed)
            << Info(type).name << " row " << o;
      }
    }
    // `exact` and the scalar ISA keep fp32. The others must round, or decoding is several times slower.
    const bool rounds = cpu->isa() != "scalar";
    double off = 0;
    for (size_t o = 0; o < 40; ++o) {
      off = std::max<double>(off, std::abs(got.view().Row<float>(0)[o] - want.view().Row<float>(0)[o]));
    }
    EXPECT_EQ(off > 1e-4 * Rms(ToMatrix(want.view()).front()), rounds) << Info(type).name;
  }
}

}  // namespace
}  // namespace coppice
