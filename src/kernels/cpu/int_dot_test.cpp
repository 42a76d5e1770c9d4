// Integer products of quantised weights: against fp64 on the same codes, against fp32 within what rounding x
// to codes can do, and bit for bit between instruction sets.
#include "kernels/cpu/int_dot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "avx_vnni_emulator.h"
#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"

namespace coppice {
namespace {

using namespace testing_kernels;
using cpu::DotGroup;
using cpu::IntDotKernels;
using cpu::kDotGroup;

const std::vector<DType> kQuantised = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                       DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
const std::vector<int64_t> kCounts = {32, 64, 96, 224, 256, 288, 512, 544, 768, 2048};

// AVX-VNNI through an emulator where the CPU lacks it.
std::vector<const IntDotKernels*> Tables() {
  std::vector<const IntDotKernels*> tables;
  if (Cpu().avx2) {
    InstallAvxVnniEmulator();
    tables = {&cpu::Avx2IntDots(), &cpu::AvxVnniIntDots()};
  }
  if (Cpu().avx512_vnni) tables.push_back(&cpu::Avx512VnniIntDots());
  return tables;
}

std::vector<DotGroup> Quantised(const IntDotKernels& kernels, std::span<const float> x, bool paired = false) {
  const auto count = static_cast<int64_t>(x.size());
  std::vector<DotGroup> groups(static_cast<size_t>(cpu::DotGroups(count)));
  kernels.quantize(x.data(), count, paired, groups.data());
  return groups;
}

// x as w's type takes it.
std::vector<float> Dots(const IntDotKernels& kernels, const Tensor& w, std::span<const float> row,
                        const float* bias = nullptr) {
  const auto type = static_cast<size_t>(w.dtype());
  const std::vector<DotGroup> x = Quantised(kernels, row, kernels.paired[type]);
  std::vector<float> y(static_cast<size_t>(w.rows()));
  const TensorView view = w.view();
  kernels.dot[type]({view.data, view.stride, view.rows, x.data(), view.cols, bias, y.data()});
  return y;
}

// Every row within 1e-6 of the sum of magnitudes: what a few dozen fp32 sums may lose.
void ExpectDots(const Tensor& w, const std::vector<DotGroup>& x, const float* bias,
                const std::vector<float>& y) {
  const Matrix weights = ToMatrix(w.view());
  for (size_t o = 0; o < weights.size(); ++o) {
    double sum = bias == nullptr ? 0 : bias[o];
    double magnitude = std::abs(sum);
    for (size_t k = 0; k < weights[o].size(); ++k) {
      const DotGroup& group = x[k / kDotGroup];
      const double product = weights[o][k] * group.codes[k % kDotGroup] * group.scale;
      sum += product;
      magnitude += std::abs(product);
    }
    ASSERT_NEAR(y[o], sum, 1e-6 * magnitude) << "row " << o;
  }
}

TEST(IntDot, CodesAreTheNearestAndSumsAreTheirs) {
  for (const IntDotKernels* kernels : Tables()) {
    for (int64_t count : kCounts) {
      Tensor x = Random(1, count, 7);
      x.mutable_view().Row<float>(0)[static_cast<size_t>(count) - 1] = -9;  // the largest of its group
      const std::span<const float> row = x.view().Row<float>(0);
      const std::vector<DotGroup> groups = Quantised(*kernels, row);
      for (size_t g = 0; g < groups.size(); ++g) {
        std::array<int, 16> sums = {};
        float most = 0;
        for (size_t k = 0; k < kDotGroup; ++k) {
          const size_t at = g * kDotGroup + k;
          const float v = at < row.size() ? row[at] : 0;
          most = std::max(most, std::abs(v));
          ASSERT_NEAR(groups[g].codes[k], v / groups[g].scale, 0.5001) << at;
          sums[k / 32 + (k % 32 < 16 ? 0 : 8)] += groups[g].codes[k];
        }
        ASSERT_EQ(groups[g].scale, most / 127);
        for (size_t j = 0; j < 16; ++j) ASSERT_EQ(groups[g].sums[j], sums[j]) << j;
      }
      ASSERT_EQ(groups.back().codes[(count - 1) % kDotGroup], -127);
    }
  }
}

TEST(IntDot, PairedCodesAreTheFirstHalvesOfTwoBlocksThenTheLast) {
  const Tensor x = Random(1, 288, 13);
  const std::span<const float> row = x.view().Row<float>(0);
  for (const IntDotKernels* kernels : Tables()) {
    const std::vector<DotGroup> straight = Quantised(*kernels, row);
    const std::vector<DotGroup> paired = Quantised(*kernels, row, true);
    for (size_t g = 0; g < straight.size(); ++g) {
      for (size_t k = 0; k < kDotGroup; ++k) {
        const size_t block = k / 32, half = k % 32 / 16;
        const size_t at = block / 2 * 64 + half * 32 + block % 2 * 16 + k % 16;
        ASSERT_EQ(paired[g].codes[at], straight[g].codes[k]) << g << " " << k;
      }
      for (size_t j = 0; j < 8; ++j) {
        EXPECT_EQ(paired[g].block_sums[j], static_cast<float>(straight[g].sums[j] + straight[g].sums[8 + j]));
      }
      EXPECT_EQ(paired[g].scale, straight[g].scale);
    }
  }
}

TEST(IntDot, HalvesRoundToEven) {
  std::vector<float> x(32);
  x[0] = 127;  // scale 1
  x[1] = 2.5f, x[2] = 3.5f, x[3] = -2.5f, x[4] = -0.5f;
  for (const IntDotKernels* kernels : Tables()) {
    const DotGroup group = Quantised(*kernels, x).front();
    const std::vector<int> codes(group.codes, group.codes + 5);
    EXPECT_EQ(codes, (std::vector<int>{127, 2, 4, -2, 0}));
  }
}

TEST(IntDot, ZerosTinyAndNotFiniteRows) {
  const Tensor w = RandomBlocks(DType::kQ4_0, 3, 512, 1);
  for (const IntDotKernels* kernels : Tables()) {
    for (float value : {0.0f, 1e-40f, 1e-36f}) {
      const std::vector<float> x(512, value);
      const DotGroup group = Quantised(*kernels, x).front();
      for (int8_t code : group.codes) EXPECT_GE(code, 0) << value;  // no overflow on the way
      for (float y : Dots(*kernels, w, x)) EXPECT_TRUE(std::abs(y) < 1e-30f) << value;
    }
    for (float value : {std::nanf(""), INFINITY, -INFINITY}) {
      for (size_t at : {0u, 17u, 300u, 511u}) {
        std::vector<float> x(512, 1.0f);
        x[at] = value;
        for (float y : Dots(*kernels, w, x)) EXPECT_TRUE(std::isnan(y)) << value << " " << at;
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
        ExpectDots(w, Quantised(*kernels, x), b, Dots(*kernels, w, x, b));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The largest codes and scales, with either sign of x: 16-bit sums of pairs must not saturate.
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
          const int64_t bytes = two ? 4 : 2;
          const int64_t block_bytes = Info(type).block_bytes;
          for (int64_t b = late ? block_bytes - bytes : 0; b < w.bytes(); b += block_bytes) {
            std::memcpy(w.mutable_view().data + b, factors.view().data + b, static_cast<size_t>(bytes));
          }
          const std::vector<float> x(512, sign);
          ExpectDots(w, Quantised(*kernels, x), nullptr, Dots(*kernels, w, x));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(IntDot, EveryInstructionSetGivesTheSameBits) {
  const std::vector<const IntDotKernels*> tables = Tables();
  if (tables.size() < 2) GTEST_SKIP() << "this CPU has none of them";
  const Tensor row = Random(1, 2048, 9);
  const std::span<const float> values = row.view().Row<float>(0);
  const std::vector<DotGroup> x = Quantised(*tables[0], values);
  for (size_t i = 1; i < tables.size(); ++i) {
    const std::vector<DotGroup> other = Quantised(*tables[i], values);
    for (size_t g = 0; g < x.size(); ++g) {
      EXPECT_EQ(x[g].scale, other[g].scale);
      EXPECT_EQ(std::memcmp(x[g].codes, other[g].codes, sizeof x[g].codes), 0);
      EXPECT_EQ(std::memcmp(x[g].sums, other[g].sums, sizeof x[g].sums), 0);
    }
    for (DType type : kQuantised) {
      const Tensor w = RandomBlocks(type, 20, 2048, 10);
      EXPECT_EQ(Dots(*tables[0], w, values), Dots(*tables[i], w, values)) << Info(type).name << " " << i;
    }
  }
}

// Rounding moves a value of x by at most half a step of its group, so a product by at most |w| times that.
TEST(IntDot, DecodeProductsStayWithinWhatRoundingMayDo) {
  const std::unique_ptr<Backend> reference = MakeBackend("reference", {});
  const std::unique_ptr<Backend> cpu = MakeBackendOrSkip("cpu", {.threads = 2, .exact = false});
  if (!cpu) GTEST_SKIP() << "this CPU lacks the instruction set that COPPICE_ISA names";
  const Tensor x = Random(3, 1280, 11);
  for (DType type : kQuantised) {
    const Tensor w = RandomBlocks(type, 40, 1280, 12);
    Tensor want(DType::kF32, 3, 40);
    Tensor got(DType::kF32, 3, 40);
    reference->DecodeProduct(x.view(), w.view(), {}, want.mutable_view());
    cpu->DecodeProduct(x.view(), w.view(), {}, got.mutable_view());
    const Matrix weights = ToMatrix(w.view());
    for (int64_t i = 0; i < 3; ++i) {
      const std::span<const float> row = x.view().Row<float>(i);
      std::vector<double> half_step;
      for (size_t k = 0; k < row.size(); k += kDotGroup) {
        float most = 0;
        for (float v : row.subspan(k, kDotGroup)) most = std::max(most, std::abs(v));
        half_step.push_back(most / 127 / 2);
      }
      for (size_t o = 0; o < weights.size(); ++o) {
        double allowed = 0;
        for (size_t k = 0; k < row.size(); ++k) allowed += std::abs(weights[o][k]) * half_step[k / kDotGroup];
        ASSERT_NEAR(got.view().Row<float>(i)[o], want.view().Row<float>(i)[o], 1.0001 * allowed)
            << Info(type).name << " row " << o;
      }
    }
    // --exact and the scalar ISA keep fp32; the others must not, or decoding is several times slower.
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
