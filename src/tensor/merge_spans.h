// Spans in the order that the engine wants them in.
#pragma once

#include <vector>

#include "tensor/token_set.h"

namespace coppice {

// Sorts the spans, makes one of those that overlap or touch, and leaves out the empty ones.
std::vector<PositionSpan> MergeSpans(std::vector<PositionSpan> spans);

}  // namespace coppice
