// What the tests of integer products share.
#pragma once

#include <span>

#include "avx_vnni_emulator.h"
#include "kernels/conformance_support.h"
#include "kernels/cpu/int_dot.h"

namespace coppice::testing_int_dots {

using cpu::DotGroup;
using cpu::DotLayout;
using cpu::IntDotKernels;
using cpu::kDotBlock;
using cpu::kDotGroup;

inline const std::vector<DType> kBlockTypes = {DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1,
                                               DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4};
inline const std::vector<DType> kQuantised = {
    DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,    DType::kQ2_K,
    DType::kQ3_K,   DType::kQ4_K,    DType::kQ5_K,   DType::kQ6_K,  DType::kIQ4_NL,  DType::kMXFP4,
    DType::kIQ4_XS, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};

// Runs AVX-VNNI in an emulator if the CPU lacks it.
inline std::vector<const IntDotKernels*> Tables() {
  std::vector<const IntDotKernels*> tables;
  if (Cpu().avx2) {
    InstallAvxVnniEmulator();
    tables = {&cpu::Avx2IntDots(), &cpu::AvxVnniIntDots()};
  }
  if (Cpu().avx512_vnni) tables.push_back(&cpu::Avx512VnniIntDots());
  return tables;
}

// Then each instruction of AVX-VNNI is a trap: the shapes of one test took 140 s.
inline bool IsEmulated(const IntDotKernels& kernels) {
  return !Cpu().avx_vnni && &kernels == &cpu::AvxVnniIntDots();
}

inline std::vector<DotGroup> Quantised(const IntDotKernels& kernels, std::span<const float> x,
                                       DotLayout layout) {
  const auto count = static_cast<int64_t>(x.size());
  std::vector<DotGroup> groups(static_cast<size_t>(cpu::DotGroups(count)));
  kernels.quantize(x.data(), count, layout, groups.data(), 1);
  return groups;
}

// Quantises x in the layout of w's type and multiplies.
inline std::vector<float> Dots(const IntDotKernels& kernels, const TensorView& w, std::span<const float> row,
                               const float* bias = nullptr) {
  const auto type = static_cast<size_t>(w.dtype);
  const std::vector<DotGroup> x = Quantised(kernels, row, kernels.layout[type]);
  std::vector<float> y(static_cast<size_t>(w.rows));
  kernels.dot[type]({w.data, w.stride, w.rows, 0, x.data(), 1, w.cols, bias, y.data(), 0});
  return y;
}

}  // namespace coppice::testing_int_dots
