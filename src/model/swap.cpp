#include "model/swap.h"

#include <algorithm>
#include <vector>

namespace coppice {

namespace {

// Blocks of the prompt that have rows in the hot cache and are not attended.
std::vector<int32_t> BlocksToLeave(const LayerCache& hot, int64_t prompt_tokens, int block,
                                   std::span<const int32_t> attended) {
  std::vector<int32_t> leave;
  for (const int32_t p : hot.positions()) {
    if (p >= prompt_tokens) break;
    const int32_t b = p / block;
    if (!leave.empty() && leave.back() == b) continue;
    if (!std::binary_search(attended.begin(), attended.end(), b)) leave.push_back(b);
  }
  return leave;
}

// Writes down which of the positions lie in the blocks.
void Note(const SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> positions,
          int block, std::span<const int32_t> blocks) {
  if (sequence.trace == nullptr) return;
  std::vector<int32_t> moved;
  for (const int32_t p : positions) {
    if (std::binary_search(blocks.begin(), blocks.end(), p / block)) moved.push_back(p);
  }
  sequence.trace->Event(layer, kind, moved);
}

}  // namespace

void BeginSwapOfSegment(SequenceState& sequence, const LayerRange& layers, int block,
                        std::span<const int32_t> attended, DType dtype) {
  bool swapped = false;
  for (int l = layers.first; l <= layers.last; ++l) {
    LayerCache& hot = sequence.cache[static_cast<size_t>(l)];
    const std::vector<int32_t> leave = BlocksToLeave(hot, sequence.prompt_tokens, block, attended);
    if (!leave.empty()) {
      Note(sequence, l, TraceEventKind::kOffloaded, hot.positions(), block, leave);
      if (!sequence.cold) {
        const int64_t record = block * 2 * BytesOf(dtype, hot.width());
        sequence.cold = std::make_unique<ColdCache>(OpenColdFile(sequence.cold_options, record),
                                                    static_cast<int>(sequence.cache.size()), block);
      }
      sequence.cold->Offload(l, leave, hot);
      swapped = true;
    }
    if (!sequence.cold) continue;
    std::vector<int32_t> fetch;
    for (const int32_t b : attended) {
      if (sequence.cold->IsCold(l, b)) fetch.push_back(b);
    }
    if (fetch.empty()) continue;
    Note(sequence, l, TraceEventKind::kLoaded, sequence.cold->ColdPositions(l), block, fetch);
    sequence.cold->Prefetch(l, fetch);
    swapped = true;
  }
  if (swapped) ++sequence.ledger.swaps;
}

}  // namespace coppice
