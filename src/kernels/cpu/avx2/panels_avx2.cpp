// Panel products for AVX2, and for AVX-VNNI, whose instruction is written as assembly, so this file needs no compiler
// flag of its own; who calls, asks for the CPU's feature first.
#include <immintrin.h>

#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx2/vector.inl"

// On top of V, so after it, and the panels on top of the functions.
// clang-format off
#include "kernels/cpu/kernel_math.inl"
#include "kernels/cpu/panel_common.inl"
#include "kernels/cpu/avx2/panels.inl"
// clang-format on

constexpr PanelKernels kIntPanels = PanelsOf<WideDot>();
constexpr PanelKernels kVnniPanels = PanelsOf<VnniDot>();
constexpr PanelKernels kFloatPanels = PanelsOf<FloatDot>();
}  // namespace

const PanelKernels& Avx2IntPanels() { return kIntPanels; }
const PanelKernels& AvxVnniPanels() { return kVnniPanels; }
const PanelKernels& Avx2FloatPanels() { return kFloatPanels; }

}  // namespace coppice::cpu
