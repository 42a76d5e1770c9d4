#include "model/record.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

namespace coppice {

namespace {

// The tokens whose keys a layer holds after its attention, in any kv head.
std::vector<int32_t> StoredTokens(const LayerState& layer) {
  std::vector<int32_t> stored;
  for (const std::span<const int32_t> list : layer.cache.position_lists()) {
    std::vector<int32_t> both;
    std::set_union(stored.begin(), stored.end(), list.begin(), list.end(), std::back_inserter(both));
    stored = std::move(both);
  }
  // Rows that CloseGap moved have slots as positions; the trace needs their original positions.
  std::copy(layer.sinks.positions.begin(), layer.sinks.positions.end(), stored.begin());
  return stored;
}

// The tokens that a layer with a state has read.
std::vector<int32_t> ReadTokens(const SequenceState& sequence, int layer) {
  std::vector<int32_t> read;
  for (size_t p = 0; p < sequence.depth.size(); ++p) {
    if (sequence.depth[p] > layer) read.push_back(static_cast<int32_t>(p));
  }
  return read;
}

// By process: the positions of the rows that it computes.
std::vector<std::vector<int32_t>> ComputedBy(const Stream& x) {
  std::vector<std::vector<int32_t>> positions(static_cast<size_t>(x.deal().processes()));
  const std::vector<int> owners = x.deal().Owners();
  for (size_t row = 0; row < owners.size(); ++row)
    positions[static_cast<size_t>(owners[row])].push_back(x.positions()[row]);
  return positions;
}

}  // namespace

void RecordPrefillBegin(SequenceState& sequence, bool compact_positions) {
  if (sequence.trace == nullptr) return;
  const bool moved = compact_positions && sequence.entered < sequence.ledger.prompt_tokens();
  sequence.trace->BeginPrefill(static_cast<int>(sequence.layers.size()), sequence.ledger.prompt_tokens(),
                               moved ? sequence.input : std::vector<int32_t>{});
}

void RecordPrefillEnd(SequenceState& sequence) {
  sequence.ledger.NoteHeld(sequence.kv_bytes(), sequence.aux.bytes());
  if (sequence.trace == nullptr) return;
  sequence.trace->EndPrefill(sequence.bytes_held(), sequence.dense_kv_bytes(sequence.ledger.prompt_tokens()));
}

void RecordStepBegin(SequenceState& sequence, int32_t position) {
  if (sequence.trace != nullptr) sequence.trace->BeginStep(position);
}

void RecordStepEnd(SequenceState& sequence, int64_t tokens) {
  std::vector<StepCounts> counts;
  for (const LayerState& layer : sequence.layers) counts.push_back(layer.step);
  sequence.ledger.CountDecodeStep(counts, tokens);
  sequence.ledger.NoteHeld(sequence.kv_bytes(), sequence.aux.bytes());
  if (sequence.trace != nullptr) sequence.trace->EndStep(sequence.bytes_held());
}

void RecordAttention(Stream& x, const AttentionCounts& counts) {
  const int layer = x.seen().layer;
  SequenceState& sequence = x.sequence();
  if (x.prefill()) {
    sequence.ledger.layer(layer) = {.kv_rows = counts.stored,
                                    .query_rows = counts.queries,
                                    .ffn_rows = 0,
                                    .taken_over = x.in_front(),
                                    .density = counts.density,
                                    .probed_rows = x.rows() - counts.stored};
    if (sequence.trace != nullptr && x.deal().processes() > 1) sequence.trace->Computed(ComputedBy(x));
    return;
  }
  sequence.layer(layer).step = {.kv_rows = counts.stored,
                                .query_rows = counts.queries,
                                .ffn_rows = 0,
                                .keys = counts.keys,
                                .density = counts.density};
  if (sequence.trace == nullptr) return;
  sequence.trace->Attended(layer, std::llround(counts.density * static_cast<double>(counts.keys)));
  sequence.trace->Event(layer, TraceEventKind::kRevived,
                        std::span(x.positions()).first(x.positions().size() - 1));
}

void RecordFfn(Stream& x, const TokenSet& rows) {
  const int layer = x.seen().layer;
  SequenceState& sequence = x.sequence();
  if (!x.prefill()) {
    sequence.layer(layer).step.ffn_rows = rows.size();
    sequence.layer(layer).step.ended_rows = x.rows();
    return;
  }
  sequence.ledger.layer(layer).ffn_rows = rows.size();
  sequence.ledger.layer(layer).ended_rows = x.rows();
  if (sequence.trace == nullptr) return;
  TraceLayer record;
  const LayerCache& cache = sequence.layer(layer).cache;
  const bool attends = cache.width() > 0;
  record.kept = attends ? StoredTokens(sequence.layer(layer)) : ReadTokens(sequence, layer);
  record.rows_per_head = attends ? cache.rows() : std::ssize(record.kept);
  record.density = sequence.ledger.layer(layer).density;
  const std::span<const int32_t> seen = x.seen().positions;
  // The reused prefix ran its FFN once, in an earlier prompt.
  record.ffn.assign(seen.begin(), seen.begin() + x.in_front());
  for (const int32_t row : rows.ToRows()) record.ffn.push_back(seen[static_cast<size_t>(x.in_front() + row)]);
  sequence.trace->Layer(std::move(record));
}

void RecordRemoved(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> before,
                   std::span<const int32_t> after) {
  if (sequence.trace == nullptr) return;
  std::vector<int32_t> removed;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(removed));
  sequence.trace->Event(layer, kind, removed);
}

void RecordBlocks(SequenceState& sequence, int layer, TraceEventKind kind, std::span<const int32_t> positions,
                  int block, std::span<const int32_t> blocks) {
  if (sequence.trace == nullptr) return;
  std::vector<int32_t> moved;
  for (const int32_t p : positions) {
    if (std::binary_search(blocks.begin(), blocks.end(), p / block)) moved.push_back(p);
  }
  sequence.trace->Event(layer, kind, moved);
}

}  // namespace coppice
