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

// Records the attention of the stream's current layer. `query_rows`: rows that attended. `keys`: keys that
// they could attend. `density`: share of the pairs that was computed.
void RecordAttention(Stream& x, int64_t query_rows, int64_t keys, double density);
// Records the FFN of the stream's current layer, after it ran on `rows`.
void RecordFfn(Stream& x, const TokenSet& rows);

// Decode: records the positions of `before` that are not in `after`. Both ascend.
void RecordRemoved(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> before,
                   std::span<const int32_t> after);
// Decode: records the positions that lie in `blocks`, which ascend.
void RecordBlocks(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> positions,
                  int block, std::span<const int32_t> blocks);

}  // namespace coppice
