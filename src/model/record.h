// Records a pass: counts of rows in the ledger, and what happened to each token in the trace, if there is
// one.
#pragma once

#include <cstdint>
#include <span>

#include "model/sequence.h"
#include "model/stream.h"
#include "tensor/token_set.h"

namespace coppice {

void RecordPrefillBegin(SequenceState& sequence, bool compact_positions);
void RecordPrefillEnd(SequenceState& sequence);
void RecordStepBegin(SequenceState& sequence, int32_t position);
// `tokens`: of the sequence, at its next positions.
void RecordStepEnd(SequenceState& sequence, int64_t tokens = 1);

struct AttentionCounts {
  int64_t stored = 0;   // rows with a key and value in the layer's cache
  int64_t queries = 0;  // rows that attended
  int64_t keys = 0;     // that they could attend
  double density = 1;   // share of the pairs that was computed
};
// Records the attention of the stream's current layer. Rows of the stream that were not stored count as
// probed: their keys were computed.
void RecordAttention(Stream& x, const AttentionCounts& counts);
// Records the FFN of the stream's current layer, after it ran on `rows`.
void RecordFfn(Stream& x, const TokenSet& rows);

// Decode: records the positions of `before` that are not in `after`. Both ascend.
void RecordRemoved(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> before,
                   std::span<const int32_t> after);
// Decode: records the positions that lie in `blocks`, which ascend.
void RecordBlocks(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> positions,
                  int block, std::span<const int32_t> blocks);

}  // namespace coppice
