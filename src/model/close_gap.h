// Numbers the rows of a cache by slot instead of by position (StreamingLLM).
#pragma once

#include "kernels/backend.h"
#include "kv/layer_cache.h"
#include "model/layer_state.h"

namespace coppice {

// Closes the last gap in the cache's positions: the rows before the gap get the positions right below that of
// the row after it, and their keys are rotated to match. Attention depends only on differences of positions,
// so this equals numbering all rows by slot. `sinks` keeps these keys as first written; every rotation starts
// from them, so that rounding errors do not add up. Does nothing if there is no gap.
void CloseGap(LayerCache& cache, SinkKeys& sinks, int head_dim, const RopeTable& rope, Backend& be);

}  // namespace coppice
