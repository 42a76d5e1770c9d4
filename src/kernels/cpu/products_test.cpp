// Batch invariance of large products. The conformance tests of kernels/ cover every type, but only small
// shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace coppice {
namespace {

Tensor Random(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor t(type, rows, cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < cols; ++c) {
      if (type == DType::kF32) t.mutable_view().Row<float>(i)[c] = uniform(random);
      if (type == DType::kBF16) t.mutable_view().Row<BF16>(i)[c] = ToBF16(uniform(random));
    }
  }
  return t;
}

struct Config {
  Isa isa;
  bool exact;
  bool fast_bf16 = false;  // CpuFeatures::fast_bf16
};
void PrintTo(const Config& c, std::ostream* out) {
  *out << IsaName(c.isa) << (c.exact ? " exact" : " fast") << (c.fast_bf16 ? " bf16" : "");
}

class LargeProducts : public ::testing::TestWithParam<Config> {
 protected:
  void SetUp() override {
    if (!CpuHas(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << IsaName(GetParam().isa);
    CpuFeatures features = Cpu();
    if (GetParam().fast_bf16 && !features.avx512_bf16) GTEST_SKIP() << "this CPU lacks AVX-512 with bf16";
    features.fast_bf16 = GetParam().fast_bf16;
    backend_ = MakeCpuBackendForIsa({.threads = 2, .exact = GetParam().exact}, GetParam().isa, features);
  }
  std::unique_ptr<Backend> backend_;
};

// Sizes are and are not multiples of blocks of rows and panels of columns, and K ranges from one word to many
// ranges.
struct LargeShape {
  int64_t inputs, outputs;
};
const std::vector<LargeShape> kLargeShapes = {{1, 1},      {11, 12},   {48, 513}, {333, 1025},
                                              {2048, 600}, {5632, 96}, {4097, 40}};

TEST_P(LargeProducts, ARowIsTheSameAtAnyPlaceInAnyCall) {
  for (const LargeShape& s : kLargeShapes) {
    SCOPED_TRACE(std::to_string(s.inputs) + " -> " + std::to_string(s.outputs));
    const Tensor x = Random(DType::kF32, 391, s.inputs, 1);
    const Tensor w = Random(DType::kBF16, s.outputs, s.inputs, 2);
    const Tensor bias = Random(DType::kF32, 1, s.outputs, 3);
    PackedMatrix packed;
    backend_->Pack(w.view(), packed);
    Tensor all(DType::kF32, x.rows(), s.outputs);
    backend_->Product(x.view(), packed, bias.view(), all.mutable_view());
    for (int64_t first : {0, 1, 37, 127, 130, 260, 390}) {
      for (int64_t count : {1, 2, 65, 128, 129}) {
        if (first + count > x.rows()) continue;
        Tensor some(DType::kF32, count, s.outputs);
        backend_->Product(x.view().Rows(first, count), packed, bias.view(), some.mutable_view());
        EXPECT_EQ(
            std::memcmp(some.view().data, all.view().RowBytes(first), static_cast<size_t>(some.bytes())), 0)
            << "rows " << first << " to " << first + count;
      }
    }
    // Also checks accuracy: against fp64, for a row of the first task and one of the last.
    for (int64_t i : {3, 390}) {
      double error = 0;
      for (int64_t o = 0; o < s.outputs; ++o) {
        double expected = bias.view().Row<float>(0)[o];
        for (int64_t k = 0; k < s.inputs; ++k) {
          expected += double{x.view().Row<float>(i)[k]} * ToFloat(w.view().Row<BF16>(o)[k]);
        }
        error += std::pow(all.view().Row<float>(i)[o] - expected, 2);
      }
      // A product of unit uniforms has a deviation of sqrt(inputs) / 3. The actual sum may cancel, so it is
      // no scale for the error.
      const double typical =
          std::sqrt(static_cast<double>(s.outputs)) * (1 + std::sqrt(static_cast<double>(s.inputs)) / 3);
      EXPECT_LE(std::sqrt(error), (GetParam().exact ? 1e-5 : 1e-2) * typical) << "row " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LargeProducts,
                         ::testing::Values(Config{Isa::kScalar, true}, Config{Isa::kAvx2, true},
                                           Config{Isa::kAvx512, true}, Config{Isa::kAvx512, false},
                                           Config{Isa::kAvx512, false, true}, Config{Isa::kAmx, false}));

}  // namespace
}  // namespace coppice
