// Panel products for AVX-512: with VNNI, with bf16, and in fp32. The instructions that only some CPUs have
// are written as assembly, so this file needs no compiler flags for them; the caller must check the CPU's
// features first.
#include <immintrin.h>

#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// Each file depends on those before it.
// clang-format off
#include "kernels/cpu/generic/kernel_math.inl"
#include "kernels/cpu/generic/panel_rows.inl"
// clang-format on

// Need the panel rows.
#include "kernels/cpu/avx512_dot/pack_nibbles.inl"
#include "kernels/cpu/avx512_dot/panels.inl"

template <int64_t kGroup>
constexpr PanelKernels kVnniPanels = {
    .value_bytes = 1,
    .scaled = true,
    .group = kGroup,
    .block_rows = kCodeRows,
    .strips = kDotStrips,
    .pack = PackCodes<0x80, kGroup>,
    .prepare = PrepareCodes<kCodeRows, BlockOrder::kWords, kGroup>,
    .multiply = MultiplyPanel<CodeDot, kGroup>,
    .pack_q4_0 = kGroup == kVectorGroup ? PackQ4<false> : nullptr,
    .pack_q4_1 = kGroup == kVectorGroup ? PackQ4<true> : nullptr,
    .pack_q4_k = kGroup == kVectorGroup ? PackQ4K : nullptr,
};

constexpr PanelKernels kBf16Panels = {
    .value_bytes = 2,
    .scaled = false,
    .group = kPackValues,
    .block_rows = kDotRows,
    .strips = kDotStrips,
    .pack = PackBf16,
    .prepare = PrepareBf16<kDotRows, BlockOrder::kWords>,
    .multiply = MultiplyPanel<Bf16Dot, kPackValues>,
};

constexpr PanelKernels kFloatPanels = {
    .value_bytes = 4,
    .scaled = false,
    .group = kPackValues,
    .block_rows = kDotRows,
    .strips = kDotStrips,
    .pack = PackFloats,
    .prepare = PrepareFloats,
    .multiply = MultiplyPanel<FloatDot, kPackValues>,
};
}  // namespace

const PanelKernels& Avx512VnniPanels(bool fast) {
  return fast ? kVnniPanels<kFastGroup> : kVnniPanels<kVectorGroup>;
}
const PanelKernels& Avx512Bf16Panels() { return kBf16Panels; }
const PanelKernels& Avx512FloatPanels() { return kFloatPanels; }

}  // namespace coppice::cpu
