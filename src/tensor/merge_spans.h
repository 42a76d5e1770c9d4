// Normalises position spans.
#pragma once

#include <vector>

#include "tensor/token_set.h"

namespace coppice {

// Sorts the spans, merges those that overlap or touch, and removes empty ones.
std::vector<PositionSpan> MergeSpans(std::vector<PositionSpan> spans);

}  // namespace coppice
