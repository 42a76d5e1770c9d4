// Positions as slots of the cache (StreamingLLM).
#pragma once

#include "kernels/backend.h"
#include "kv/layer_cache.h"
#include "model/layer_state.h"

namespace coppice {

// Moves the rows before the last gap in the cache's positions up to the row after it: they get the positions
// right below that row's, and their keys are rotated to there. Attention depends on differences of positions
// alone, so this equals numbering all rows by slot. `sinks` keeps the keys as first written, and every later
// rotation starts from those, so that rounding errors do not add up. Does nothing if there is no gap.
void CloseGap(LayerCache& cache, SinkKeys& sinks, int head_dim, const RopeTable& rope, Backend& be);

}  // namespace coppice
