// The arithmetic of integer panels (panel_kernels.h) as plain loops, and a fixture of the kernels that
// compute it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "amx_emulator.h"
#include "formats/quants.h"
#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/products.h"

namespace coppice::testing_panels {

using testing_kernels::Random;
using testing_kernels::RandomWeight;
using testing_kernels::SameBits;

struct Codes {
  std::vector<int> codes;
  std::vector<float> scales;  // by group
};

// The sign of value i in a rotated block.
inline float SignOf(size_t i, size_t values) {
  if (values <= 32) return 1;
  int pairs = 0;
  for (size_t bit = 1; bit < values; bit *= 4) pairs += (i & bit) != 0 && (i & (2 * bit)) != 0;
  return pairs % 2 == 0 ? 1.0f : -1.0f;
}

// x = H S x in blocks of `values`, the rest in powers of two.
inline void Rotate(std::span<float> x, size_t values) {
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
inline float FactorAt(size_t k, size_t count, size_t values) {
  const size_t whole = count / values * values;
  return k < whole ? static_cast<float>(values) : FactorAt(k - whole, count - whole, values / 2);
}

// `steps`: of each 32 values, 0 where there is none; empty where they do not count. `rotated`: how many
// values are rotated together; 0: those that share a scale.
inline Codes Quantize(std::span<const float> row, size_t values, bool is_weight,
                      std::span<const float> steps = {}, size_t rotated = 0) {
  std::vector<float> x(row.begin(), row.end());
  x.resize(static_cast<size_t>(cpu::PanelDepth(static_cast<int64_t>(x.size()))));
  Rotate(x, rotated == 0 ? values : rotated);
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
    if (!is_weight) scale = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) & ~3u);
    q.scales.push_back(scale);
    for (float v : group) q.codes.push_back(static_cast<int>(std::nearbyint(v * inverse)));
  }
  return q;
}

// The steps of the stored codes of 32 values each, written from the layouts (formats/quant_blocks.h).
inline std::vector<float> StepsOf(const TensorView& w, int64_t row) {
  std::vector<float> steps(static_cast<size_t>(w.cols / 32), 0.0f);
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t value = static_cast<int64_t>(i) * 32;
    const std::byte* block = w.RowBytes(row) + BytesOf(w.dtype, value / Info(w.dtype).block_elements *
                                                                    Info(w.dtype).block_elements);
    F16 d;
    std::memcpy(&d, block, sizeof d);
    if (w.dtype == DType::kIQ3_S) {  // codes are odd, and a scale is a nibble
      const int nibble = static_cast<int>(block[106 + i % 8 / 2]) >> (i % 2 * 4) & 15;
      steps[i] = 2 * ToFloat(d) * static_cast<float>(2 * nibble + 1);
      continue;
    }
    const bool without = w.dtype == DType::kQ6_K || w.dtype == DType::kIQ4_NL || w.dtype >= DType::kIQ4_XS;
    if (without) continue;
    if (w.dtype == DType::kMXFP4) {
      steps[i] = std::ldexp(1.0f, static_cast<int>(block[0]) - 128);
      continue;
    }
    steps[i] = ToFloat(d);
    if (w.dtype != DType::kQ4_K) continue;
    const auto* scales = reinterpret_cast<const uint8_t*>(block) + 4;
    const size_t j = i % 8;
    const int scale = j < 4 ? scales[j] & 63 : (scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4);
    steps[i] *= static_cast<float>(scale);
  }
  return steps;
}

// Stored codes of 4 bits, which AVX2 multiplies as panel_nibbles.inl says.
inline bool IsNibbles(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kQ4_K;
}

// A group of 32 stored values, step (code - 8) + shift; the codes are rotated in fours.
struct NibbleGroup {
  float step;
  float shift = 0;
  std::vector<float> codes;
};

// Group g of a row, from the layouts.
inline NibbleGroup NibblesOf(const TensorView& w, int64_t row, size_t g) {
  NibbleGroup group{.step = StepsOf(w, row)[g], .codes = std::vector<float>(32)};
  const bool super = w.dtype == DType::kQ4_K;
  const auto* block = reinterpret_cast<const uint8_t*>(w.RowBytes(row)) +
                      BytesOf(w.dtype, static_cast<int64_t>(super ? g / 8 * 256 : g * 32));
  F16 second;
  std::memcpy(&second, block + 2, sizeof second);
  if (w.dtype == DType::kQ4_1) group.shift = ToFloat(second) + 8 * group.step;
  if (super) {
    const uint8_t* scales = block + 4;
    const size_t j = g % 8;
    const int minimum = j < 4 ? scales[j + 4] & 63 : scales[j + 4] >> 4 | (scales[j] >> 6 << 4);
    group.shift = 8 * group.step - ToFloat(second) * static_cast<float>(minimum);
  }
  const uint8_t* bytes = block + (super ? 16 + g % 8 / 2 * 32 : w.dtype == DType::kQ4_1 ? 4 : 2);
  for (size_t i = 0; i < 32; ++i) {
    const bool high = super ? g % 2 == 1 : i >= 16;
    group.codes[i] =
        static_cast<float>(high ? bytes[super ? i : i % 16] >> 4 : bytes[super ? i : i % 16] & 15) - 8;
  }
  Rotate(group.codes, 4);
  if (!std::isfinite(group.step)) group.step = std::nanf("");
  if (!std::isfinite(group.shift)) group.shift = std::nanf("");
  return group;
}

// The sum of 32 values as eight partial sums.
inline float SumOfGroup(std::span<const float> x) {
  float lanes[8];
  for (size_t j = 0; j < 8; ++j) lanes[j] = 0.0f + x[j] + x[8 + j] + x[16 + j] + x[24 + j];
  for (size_t half : {4, 2, 1}) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

inline Tensor ExpectedNibbles(const TensorView& x, const TensorView& w, const TensorView& bias) {
  Tensor y(DType::kF32, x.rows, w.rows);
  const auto groups = static_cast<size_t>(w.cols / 32);
  for (int64_t i = 0; i < x.rows; ++i) {
    std::vector<Codes> of_x(groups);
    for (size_t g = 0; g < groups; ++g)
      of_x[g] = Quantize(x.Row<float>(i).subspan(g * 32, 32), 32, false, {}, 4);
    for (int64_t o = 0; o < w.rows; ++o) {
      float sum = 0;
      for (size_t g = 0; g < groups; ++g) {
        const NibbleGroup group = NibblesOf(w, o, g);
        int32_t exact = 0;
        for (size_t k = 0; k < 32; ++k) exact += of_x[g].codes[k] * static_cast<int>(group.codes[k]);
        sum = std::fma(static_cast<float>(exact) * of_x[g].scales.front(), group.step / 4, sum);
        if (w.dtype != DType::kQ4_0)
          sum = std::fma(SumOfGroup(x.Row<float>(i).subspan(g * 32, 32)), group.shift, sum);
      }
      y.mutable_view().Row<float>(i)[static_cast<size_t>(o)] =
          bias.empty() ? sum : sum + bias.Row<float>(0)[static_cast<size_t>(o)];
    }
  }
  return y;
}

inline Tensor Expected(const TensorView& x, const TensorView& w, const TensorView& bias, size_t values) {
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
        sum = std::fma(static_cast<float>(exact) * row.scales[g], column.scales[g], sum);
      }
      y.mutable_view().Row<float>(i)[static_cast<size_t>(o)] =
          bias.empty() ? sum : sum + bias.Row<float>(0)[static_cast<size_t>(o)];
    }
  }
  return y;
}

struct Kernels {
  Isa isa;
  bool fast = false;

  size_t group() const {
    return isa == Isa::kAmx ? cpu::kTileGroup : fast ? cpu::kFastGroup : cpu::kVectorGroup;
  }
  Tensor Expected(const TensorView& x, const TensorView& w, const TensorView& bias = {}) const {
    return isa == Isa::kAvx2 && IsNibbles(w.dtype) ? ExpectedNibbles(x, w, bias)
                                                   : testing_panels::Expected(x, w, bias, group());
  }
};

inline void PrintTo(const Kernels& k, std::ostream* out) {
  *out << IsaName(k.isa) << (k.fast ? "_fast" : "");
}

class IntProductsTest : public ::testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override {
    const Isa isa = GetParam().isa;
    const bool can = isa == Isa::kAvx2  ? Cpu().avx2
                     : isa == Isa::kAmx ? Cpu().avx512_bf16
                                        : Cpu().avx512_vnni;
    if (!can) GTEST_SKIP() << "this CPU lacks " << IsaName(isa) << " or VNNI";
    if (isa == Isa::kAmx) InstallAmxEmulator();
    CpuFeatures features = Cpu();
    features.avx_vnni = false;  // AvxVnniProducts tests those kernels
    backend_ = MakeCpuBackendForIsa({.threads = 2, .exact = false, .fast = GetParam().fast}, isa, features);
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

inline const Kernels kPanelKernels[] = {
    {Isa::kAvx2}, {Isa::kAvx512}, {Isa::kAmx}, {Isa::kAvx2, true}, {Isa::kAvx512, true}};

inline std::string KernelsName(const ::testing::TestParamInfo<Kernels>& test) {
  return std::string(IsaName(test.param.isa)) + (test.param.fast ? "_fast" : "");
}

}  // namespace coppice::testing_panels
