// The kernels of AVX-512, with AMX tiles for panel products and for attention over a bf16 or Q8_0 cache.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// 4 x 6 sums, 6 columns and 1 broadcast: 31 of the 32 registers.
constexpr int kPanelVectors = 6;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"

// Need the kernels.
#include "kernels/cpu/amx/tiles.inl"

// Need the tiles and the cache rows.
#include "kernels/cpu/avx512/softmax_weights.inl"
#include "kernels/cpu/generic/kernel_cache_rows.inl"

#include "kernels/cpu/amx/attention.inl"
#include "kernels/cpu/generic/panel_rows.inl"

// Needs the tiles and the panel rows.
#include "kernels/cpu/amx/panels.inl"

constexpr KernelTable WithTiles(KernelTable table) {
  table.attention_bf16 = {AttendAmx,   MergeStates, ClearState, FinishRows, AddMassAmx,
                          PackTileAmx, 0,           0,          true};
  return table;
}

constexpr PanelKernels kIntPanels = {
    .value_bytes = 1,
    .scaled = true,
    .group = kTileGroup,
    .block_rows = kTileRows,
    .strips = kTileStrips,
    .x_bytes = kTileCacheBytes,
    .pack = PackCodes<0, kTileGroup>,
    .prepare = PrepareCodes<kTileRows, BlockOrder::kTiles, kTileGroup>,
    .multiply = MultiplyTilePanel<true>,
};

constexpr PanelKernels kBf16Panels = {
    .value_bytes = 2,
    .scaled = false,
    .group = kPackValues,
    .block_rows = kTileRows,
    .strips = kTileStrips,
    .x_bytes = kTileCacheBytes,
    .pack = PackBf16,
    .prepare = PrepareBf16<kTileRows, BlockOrder::kTiles>,
    .multiply = MultiplyTilePanel<false>,
};

constexpr KernelTable kAmxTable = WithTiles(kTable);
}  // namespace

const KernelTable& AmxKernels() { return kAmxTable; }
const PanelKernels& AmxIntPanels() { return kIntPanels; }
const PanelKernels& AmxBf16Panels() { return kBf16Panels; }

}  // namespace coppice::cpu
