// Positions as slots of the cache (StreamingLLM).
#pragma once

#include "kernels/backend.h"
#include "kv/layer_cache.h"
#include "model/sequence.h"

namespace coppice {

// Moves the rows before the first gap in the cache's positions up against the row behind it: their positions
// become the ones right below it, and their keys are rotated there. Attention depends on differences of
// positions alone, so this equals numbering all rows by slot. `sinks` keeps the keys as they were first
// written, and every later rotation starts from those, so that rounding does not pile up. Does nothing
// without a gap.
void CloseGap(LayerCache& cache, SinkKeys& sinks, int head_dim, const RopeTable& rope, Backend& be);

}  // namespace coppice
