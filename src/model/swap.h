// Between hot memory and the cold tier, while a decode step computes.
#pragma once

#include <cstdint>
#include <span>

#include "model/sequence.h"

namespace coppice {

struct LayerRange {
  int first = 0;
  int last = 0;  // inclusive
};

// Makes the hot caches of a range of layers follow what they will attend, in blocks of positions of the
// prompt: takes out blocks that are not among `attended` (ascending), begins to write those that the cold tier
// lacks, and begins to read those that are cold. The transfers run beside the FFN and the next layers; each
// layer waits for its own before it attends (ColdCache::Load).
void BeginSwapOfSegment(SequenceState& sequence, const LayerRange& layers, int block,
                        std::span<const int32_t> attended, DType dtype);

}  // namespace coppice
