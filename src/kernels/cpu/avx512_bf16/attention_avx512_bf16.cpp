// Attention over a bf16 or Q8_0 cache for CPUs whose vdpbf16ps has twice the rate of fp32 products (AMD's
// from Zen 4 on). Of these kernels, CPUs with VNNI alone use those for keys and values as codes, and all CPUs
// with vdpbf16ps those of decode steps.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// 8 x 3 sums, 3 columns and 1 broadcast: 28 of the 32 registers. 4 x 6 need no more loads, but a tile's
// scores, weights and outputs of 96 rows would not fit into 48 KiB of L1 (docs/performance.md).
constexpr int kPanelVectors = 3;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"

// Need the kernels.
#include "kernels/cpu/avx512/softmax_weights.inl"
#include "kernels/cpu/generic/kernel_cache_rows.inl"
#include "kernels/cpu/generic/rotation.inl"

// Need kernel_cache_rows.inl; the order matters.
// clang-format off
#include "kernels/cpu/avx512_bf16/attention_panel.inl"
#include "kernels/cpu/avx512_bf16/softmax_quads.inl"
#include "kernels/cpu/avx512_bf16/attention_int8.inl"
#include "kernels/cpu/avx512_bf16/attention_int8_keys.inl"
#include "kernels/cpu/avx512_bf16/attention_int16_keys.inl"
#include "kernels/cpu/avx512_bf16/attention.inl"
#include "kernels/cpu/avx512_bf16/attention_few.inl"
#include "kernels/cpu/avx512_bf16/decode_attention.inl"
// clang-format on

constexpr AttentionKernels kPairAttention = {
    AttendAnyPairs, MergeStates, ClearState, FinishRows, AddMassPairs, PackTilePairs, 1, 8, true, kCodeUnit};
constexpr DecodeKernels kPairDecode = {AttendPairDecode, FinishDecode};
}  // namespace

const AttentionKernels& Avx512Bf16Attention() { return kPairAttention; }
const DecodeKernels& Avx512Bf16Decode() { return kPairDecode; }

}  // namespace coppice::cpu
