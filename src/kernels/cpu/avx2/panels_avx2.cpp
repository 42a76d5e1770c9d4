// Panel products for AVX2 and AVX-VNNI. The instruction of AVX-VNNI is written as assembly, so this file
// needs no compiler flag for it; the caller must check the CPU's feature first.
#include <immintrin.h>

#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx2/vector.inl"

// kernel_math.inl needs V, and panels.inl needs both.
// clang-format off
#include "kernels/cpu/generic/kernel_math.inl"
#include "kernels/cpu/generic/panel_common.inl"
#include "kernels/cpu/generic/rotation.inl"
#include "kernels/cpu/avx2/panels.inl"
#include "kernels/cpu/avx2/panel_nibbles.inl"
// clang-format on

template <int64_t kGroup>
constexpr PanelKernels kIntPanels = PanelsOf<WideDot<kGroup>>();
template <int64_t kGroup>
constexpr PanelKernels kVnniPanels = PanelsOf<VnniDot<kGroup>>();
constexpr PanelKernels kFloatPanels = PanelsOf<FloatDot>();
constexpr PanelKernels kNibblePanels = NibblePanels<false>();
constexpr PanelKernels kShiftedNibblePanels = NibblePanels<true>();
}  // namespace

const PanelKernels& Avx2IntPanels(bool fast) {
  return fast ? kIntPanels<kFastGroup> : kIntPanels<kVectorGroup>;
}
const PanelKernels& AvxVnniPanels(bool fast) {
  return fast ? kVnniPanels<kFastGroup> : kVnniPanels<kVectorGroup>;
}
const PanelKernels& Avx2NibblePanels(bool shifted) { return shifted ? kShiftedNibblePanels : kNibblePanels; }
const PanelKernels& Avx2FloatPanels() { return kFloatPanels; }

}  // namespace coppice::cpu
