// AVX-512's kernels, with attention over a bf16 cache on tiles. Products reach AMX through oneDNN.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// On top of V, so after it.
#include "kernels/cpu/kernels.inl"

// On top of the kernels.
#include "kernels/cpu/amx/tiles.inl"

// On top of the tiles.
#include "kernels/cpu/amx/attention.inl"

constexpr KernelTable WithTiles(KernelTable table) {
  table.attention_bf16 = {AttendAmx, MergeStates, ClearState, FinishRows, AddMassAmx};
  return table;
}

constexpr KernelTable kAmxTable = WithTiles(kTable);
}  // namespace

const KernelTable& AmxKernels() { return kAmxTable; }

}  // namespace coppice::cpu
