#include "tensor/merge_spans.h"

#include <algorithm>

namespace coppice {

std::vector<PositionSpan> MergeSpans(std::vector<PositionSpan> spans) {
  std::ranges::sort(spans, {}, &PositionSpan::begin);
  std::vector<PositionSpan> merged;
  for (const PositionSpan& span : spans) {
    if (span.begin >= span.end) continue;
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace coppice
