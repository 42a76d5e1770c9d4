// What a pass writes down: counts of rows in the ledger, and what happened to each token in the trace, if
// there is one.
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
void RecordStepEnd(SequenceState& sequence);

// The attention of the stream's current layer: rows that asked, keys they could attend, share of the pairs
// computed.
void RecordAttention(Stream& x, int64_t query_rows, int64_t keys, double density);
// The FFN of the stream's current layer, which is over.
void RecordFfn(Stream& x, const TokenSet& rows);

// In decode: the positions of `before` that are not in `after`. Both ascend.
void RecordRemoved(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> before,
                   std::span<const int32_t> after);
// In decode: the positions that lie in the blocks, which ascend.
void RecordBlocks(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> positions,
                  int block, std::span<const int32_t> blocks);

}  // namespace coppice
