// Attention with 16-bit codes over a bf16 or Q8_0 cache, for AVX2.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx2/vector.inl"

// 4 x 3 sums, 3 columns and 1 broadcast fill the 16 registers.
constexpr int kPanelVectors = 3;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"

// Need the kernels; the order matters.
// clang-format off
#include "kernels/cpu/generic/rotation.inl"
#include "kernels/cpu/avx2/attention_codes.inl"
// clang-format on

constexpr AttentionKernels kCodeAttention = {
    AttendCodesOrFloats, MergeStates, ClearState, FinishRows, AddMass, PackCodes, 2, 16, false};
}  // namespace

const AttentionKernels& Avx2CodeAttention() { return kCodeAttention; }

}  // namespace coppice::cpu
