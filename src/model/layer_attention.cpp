// The attention of a layer: first the keys and values of all rows, then, tile by tile, queries, attention and
// output. If the policy wants scores, an Observer sees the queries as they are computed. If it chooses a
// pattern, all queries are computed before the first one attends.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "model/close_gap.h"
#include "model/layer.h"
#include "model/observe.h"
#include "model/record.h"

namespace coppice {

namespace {

std::span<const int32_t> Slice(std::span<const int32_t> list, int64_t begin, int64_t count) {
  return list.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

// Calls fn(first, begin, count) for every run rows[begin, begin + count) = first, first + 1, ...
template <typename Fn>
void ForRuns(std::span<const int32_t> rows, Fn&& fn) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    fn(int64_t{rows[begin]}, static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
    begin = end;
  }
}

}  // namespace

void Layer::Attention(Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  ws.Fit(shape());
  x.LoadColdKeys();
  if (Probes(x, pass)) return ProbedAttention(x, pass);
  const std::vector<Tile> tiles = x.Tiles(ws.tile_rows);
  StoreKeysValues(x, tiles, pass);
  const Needs needs = NeedsOf(x, pass);
  const bool alone = !x.prefill() && x.rows() == 1 && needs.empty() && !AsksPattern(x, pass);
  const AttentionFrame frame = FrameOf(x, alone, pass);
  x.seen().ClearScores();
  if (!x.prefill()) x.seen().positions = frame.rows.empty() ? frame.key_positions.front() : x.attended();

  const bool last_only = LastRowOnly(x);
  Observer observer(x.phase(), needs, frame, pass.sequence.layer(index_).units.get(), pass);
  std::vector<Tile> attending = tiles;
  if (last_only) attending.assign(pass.leads() ? 1 : 0, {x.rows() - 1, 1, ProductKind::kDecode});
  ws.query.Prepare(weights_.query, needs.empty() ? attending : tiles, ws.kept, be);
  PrepareOutput(attending, ws, be);
  for (const Tile& tile : tiles) {
    if (last_only && tile.begin + tile.count > observer.first_row())
      observer.Add(tile, Queries(x, tile, pass));
  }

  const SparsePattern pattern = ChoosePattern(x, attending, frame, pass);
  ws.packed.Begin(attention_.kv_heads, frame.keys.rows);
  for (const Tile& tile : attending) {
    pass.control.Tick(index_ + 0.25 + 0.25 * static_cast<double>(tile.begin) / static_cast<double>(x.rows()));
    const TensorView q =
        pattern.empty() ? Queries(x, tile, pass) : ws.all_q.view().Rows(tile.begin, tile.count);
    AttentionInput in = frame.Input(q, tile.begin);
    in.packed = &ws.packed;
    const MutableTensorView attended = ws.attended.mutable_view().Rows(0, tile.count);
    const bool current = tile.kind == ProductKind::kDecode;
    if (!frame.rows.empty()) {
      be.DecodeAttentionOver(in, frame.rows, attended);
    } else if (pattern.empty() || (!x.prefill() && !current)) {
      Attend(frame, in, tile.kind, attended, pass.control, be);
    } else if (current) {
      be.DecodeAttention(in, pattern, attended);
    } else {
      be.SparseAttention(in, pattern, tile.begin, attended);
    }
    const MutableTensorView rows = x.hidden().Rows(tile.begin, tile.count);
    FinishAttention({rows, attended, tile.kind}, ProductEnd::kAdd, rows, ws, be);
    if (!last_only && tile.begin + tile.count > observer.first_row()) observer.Add(tile, q);
  }
  if (pass.split != nullptr) {
    observer.Share(x.deal(), pass.split->comm());
    for (const Tile& tile : attending) pass.split->computed.query += tile.count;
  }
  observer.Finish(x.seen());
  const double density =
      pattern.empty() ? 1 : PatternDensity(pattern, x.prefill() ? x.rows() : 1, frame.keys.rows);
  RecordAttention(x, {.stored = x.rows(),
                      .queries = last_only ? 1 : x.rows(),
                      .keys = frame.attended(),
                      .density = density});
}

void Layer::PrepareOutput(const std::vector<Tile>& tiles, Workspace& ws, Backend& be) const {
  if (shape().output_gate) ws.output_gate.Prepare(weights_.output_gate, tiles, ws.kept, be);
  ws.output.Prepare(weights_.output, tiles, ws.kept, be);
}

void Layer::FinishAttention(const Attended& of, ProductEnd end, MutableTensorView y, Workspace& ws,
                            Backend& be) const {
  TensorView values = of.values;
  if (shape().output_gate) {
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, of.x.rows);
    const MutableTensorView gate = ws.gate.mutable_view().Rows(0, of.x.rows);
    // Again: since the queries were computed, `normed` may have held other rows.
    ApplyNorm(weights_.attention_norm, of.x, normed, be);
    ws.output_gate(normed, of.kind, ProductEnd::kStore, gate, be);
    be.GateMul(gate, of.values, Activation::kSigmoid);
    values = gate;
  }
  Finish({ws.output, weights_.attention_post_norm}, values, of.kind, end, y, ws, be);
}

// The last layer attends for the last row alone, but queries score there if the policy evicts, or chooses the
// rows that are stored.
Needs Layer::NeedsOf(const Stream& x, const Pass& pass) const {
  const bool scores = !LastRowOnly(x) || pass.policy.RetainsAt(x.phase(), index_) || Probes(x, pass);
  return scores ? pass.policy.NeedsAt(x.phase(), index_) : Needs();
}

void Layer::StoreKeysValues(Stream& x, const std::vector<Tile>& tiles, const Pass& pass) const {
  const std::vector<int32_t> rows = pass.sequence.layer(index_).cache.Add(x.positions());
  if (x.prefill()) BeginSummaries(x, pass);
  pass.workspace.key_value.PrepareStacked(weights_.key, weights_.value, tiles, pass.workspace.kept,
                                          pass.backend);
  if (pass.split != nullptr) {
    StoreShares(x, rows, pass);
  } else {
    for (const Tile& tile : tiles) {
      const std::span<const int32_t> some = Slice(rows, tile.begin, tile.count);
      StoreTile(x, tile, some, pass);
      AddToSummaries(pass.sequence.layer(index_), some);
    }
  }
  x.SetDepth(index_ + 1);
}

// Prefill by several processes: this one computes its rows, and a round of rows begins to travel before the
// next one is computed. Afterwards every process has the keys and values of all rows in order of position, so
// attention sums them in the order of one process.
void Layer::StoreShares(Stream& x, std::span<const int32_t> cache_rows, const Pass& pass) const {
  LayerState& layer = pass.sequence.layer(index_);
  COPPICE_CHECK(layer.cache.rows() == x.rows());  // so a row of the cache is a row of the stream
  for (int round = 0; round < x.deal().rounds(); ++round) {
    const std::vector<RowRange> ranges = x.deal().Round(round);
    const RowRange& own = ranges[static_cast<size_t>(pass.split->comm().rank())];
    if (own.count > 0) {
      StoreTile(x, {own.begin, own.count, ProductKind::kPrefill}, Slice(cache_rows, own.begin, own.count),
                pass);
    }
    pass.split->comm().BeginShare(layer.cache.mutable_keys(), ranges);
    pass.split->comm().BeginShare(layer.cache.mutable_values(), ranges);
    pass.split->computed.kv += own.count;
  }
  pass.split->comm().FinishShares();
  AddToSummaries(layer, cache_rows);
}

void Layer::StoreTile(Stream& x, const Tile& tile, std::span<const int32_t> cache_rows,
                      const Pass& pass) const {
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  const std::span<const int32_t> positions = Slice(x.positions(), tile.begin, tile.count);
  pass.control.Tick(index_ + 0.25 * static_cast<double>(tile.begin) / static_cast<double>(x.rows()));
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, tile.count);
  const MutableTensorView kv = ws.kv.mutable_view().Rows(0, tile.count);
  ApplyNorm(weights_.attention_norm, x.hidden().Rows(tile.begin, tile.count), normed, be);
  ws.key_value(normed, tile.kind, ProductEnd::kStore, kv, be);
  StoreRows(kv, positions, cache_rows, pass.sequence, be);
}

void Layer::StoreRows(MutableTensorView kv, std::span<const int32_t> positions,
                      std::span<const int32_t> cache_rows, SequenceState& sequence, Backend& be) const {
  const MutableTensorView k = kv.Cols(0, kv.cols / 2);
  const MutableTensorView v = kv.Cols(kv.cols / 2, kv.cols / 2);
  FinishHeads(weights_.key_norm, positions, sequence, k, be);
  if (!weights_.value_norm.weight.empty()) ApplyNorm(weights_.value_norm, v, v, be);

  LayerState& layer = sequence.layer(index_);
  ForRuns(cache_rows, [&](int64_t row, int64_t begin, int64_t count) {
    be.Convert(k.Rows(begin, count), layer.cache.mutable_keys().Rows(row, count));
    be.Convert(v.Rows(begin, count), layer.cache.mutable_values().Rows(row, count));
  });
}

void Layer::FinishHeads(const Norm& norm, std::span<const int32_t> positions, const SequenceState& sequence,
                        MutableTensorView x, Backend& be) const {
  if (!norm.weight.empty()) ApplyNorm(norm, x, x, be);
  const RopeTable rope = sequence.RopeOf(shape().rope);
  if (!rope.cos.empty()) be.Rope(x, attention_.head_dim, positions, rope);
}

// The temperature changes rows beyond its context alone. Backend::CheckNeeds promised host memory.
void Layer::FinishQueries(std::span<const int32_t> positions, const SequenceState& sequence,
                          MutableTensorView q, Backend& be) const {
  FinishHeads(weights_.query_norm, positions, sequence, q, be);
  const auto& [beta, context] = config_.query_temperature;
  for (size_t i = 0; beta > 0 && i < positions.size(); ++i) {
    const int64_t turns = positions[i] / context;
    if (turns == 0) continue;
    const auto factor = static_cast<float>(1 + beta * std::log1p(static_cast<double>(turns)));
    for (float& x : q.Row<float>(static_cast<int64_t>(i))) x *= factor;
  }
}

// Prefill: creates the summaries of keys that the policy will read in decode, with the keys of a reused
// prefix. Of several processes, only the one that decodes has summaries.
void Layer::BeginSummaries(const Stream& x, const Pass& pass) const {
  if (!pass.leads()) return;
  LayerState& layer = pass.sequence.layer(index_);
  const Needs needs = pass.policy.NeedsAt(Phase::kDecode, index_);
  COPPICE_CHECK(needs.unit_scores.size() <= 1);
  for (const Needs::Units& u : needs.unit_scores) {
    layer.units =
        std::make_unique<UnitKeys>(attention_, u.queries, u.unit, u.pool, pass.sequence.prompt_tokens);
  }
  if (pass.policy.Facts().page_size > 0 && pass.policy.ChoosesPattern(Phase::kDecode, index_))
    layer.pages = std::make_unique<PageBounds>(pass.policy.Facts().page_size, layer.cache.width());
  std::vector<int32_t> reused(static_cast<size_t>(x.in_front()));
  std::iota(reused.begin(), reused.end(), 0);
  AddToSummaries(layer, reused);
}

// Adds rows of the cache to the summaries that score keys in decode. In order of rows, because sums in fp32
// depend on the order.
void Layer::AddToSummaries(LayerState& layer, std::span<const int32_t> cache_rows) {
  if (!layer.units && !layer.pages) return;
  ForRuns(cache_rows, [&](int64_t row, int64_t /*begin*/, int64_t count) {
    const std::span<const int32_t> positions = Slice(layer.cache.positions(), row, count);
    const TensorView keys = layer.cache.keys().Rows(row, count);
    if (layer.units) layer.units->AddKeys(positions, keys);
    if (layer.pages) layer.pages->AddKeys(positions, keys);
  });
}

// The whole cache, or the rows of it that a decode step chose: in place if only the current token's attention
// reads them, and in host memory; else copies.
AttentionFrame Layer::FrameOf(Stream& x, bool in_place, const Pass& pass) const {
  const LayerCache& cache = pass.sequence.layer(keys_of()).cache;
  // ALiBi's biases are distances: query positions must not be moved.
  const bool alibi = !attention_.alibi_slopes.empty();
  AttentionFrame frame{attention_,
                       pass.sequence.RopeOf(shape().rope),
                       cache.keys(),
                       cache.values(),
                       cache.position_lists(),
                       x.QueryPositions(alibi ? ReviveMask::kCausal : pass.policy.Facts().revive_mask),
                       {}};
  if (x.attends_all()) return frame;
  std::vector<int32_t> rows = cache.RowsOf(x.attended());
  COPPICE_CHECK(rows.size() == x.attended().size());  // every attended token has a key here
  const auto count = static_cast<int64_t>(rows.size());
  if (count == cache.rows()) return frame;
  if (in_place && frame.keys.memory == nullptr) {
    frame.rows = std::move(rows);
    return frame;
  }
  Workspace& ws = pass.workspace;
  ws.some_keys.Resize(cache.dtype(), count, cache.width());
  ws.some_values.Resize(cache.dtype(), count, cache.width());
  pass.backend.GatherRows(cache.keys(), rows, ws.some_keys.mutable_view());
  pass.backend.GatherRows(cache.values(), rows, ws.some_values.mutable_view());
  frame.keys = ws.some_keys.view();
  frame.values = ws.some_values.view();
  frame.key_positions = {x.attended()};
  return frame;
}

TensorView Layer::Queries(Stream& x, const Tile& tile, const Pass& pass) const {
  const MutableTensorView q = pass.workspace.q.mutable_view().Rows(0, tile.count);
  QueriesInto(x, tile, q, pass);
  return q;
}

void Layer::QueriesInto(Stream& x, const Tile& tile, MutableTensorView q, const Pass& pass) const {
  const MutableTensorView normed = pass.workspace.normed.mutable_view().Rows(0, tile.count);
  ApplyNorm(weights_.attention_norm, x.hidden().Rows(tile.begin, tile.count), normed, pass.backend);
  pass.workspace.query(normed, tile.kind, ProductEnd::kStore, q, pass.backend);
  FinishQueries(Slice(x.positions(), tile.begin, tile.count), pass.sequence, q, pass.backend);
}

// In decode only the current token has a pattern: few other rows run, if any.
SparsePattern Layer::ChoosePattern(Stream& x, const std::vector<Tile>& tiles, const AttentionFrame& frame,
                                   const Pass& pass) const {
  if (!AsksPattern(x, pass) || frame.ragged()) return {};
  Tensor& all_q = pass.workspace.all_q;
  all_q.Resize(DType::kF32, x.rows(), pass.workspace.q.cols());
  for (const Tile& tile : tiles) {
    pass.control.Pause();
    QueriesInto(x, tile, all_q.mutable_view().Rows(tile.begin, tile.count), pass);
  }
  // Every process then holds all queries and computes the same pattern for all rows.
  if (pass.split != nullptr) pass.split->Share(x.deal(), all_q.mutable_view());
  const int64_t queries = x.prefill() ? x.rows() : 1;
  SparsePattern pattern =
      AskPattern(x, frame.Input(all_q.view().Rows(x.rows() - queries, queries), x.rows() - queries), pass);
  if (pass.split != nullptr) pass.split->Agree(pattern, index_);
  return pattern;
}

// Where other layers attend beyond a layer's window, the layer reads few keys already. It stays dense within
// its window: no method of sparse attention was made for windows.
bool Layer::AsksPattern(const Stream& x, const Pass& pass) const {
  if (attention_.window > 0 && attention_.window != config_.shape.WidestWindow()) return false;
  return pass.policy.ChoosesPattern(x.phase(), index_) && !(x.prefill() && LastRowOnly(x));
}

SparsePattern Layer::AskPattern(const Stream& x, const AttentionInput& in, const Pass& pass) const {
  AttentionScene scene;
  scene.phase = x.phase();
  scene.layer = index_;
  scene.pruned = x.rows() < pass.sequence.entered;
  scene.in = in;
  if (const PageBounds* pages = pass.sequence.layer(index_).pages.get()) {
    scene.page_min = pages->minimum();
    scene.page_max = pages->maximum();
  }
  scene.pause = [&pass] { pass.control.Pause(); };
  SparsePattern pattern = pass.policy.Pattern(scene, pass.backend);
  // Gathering keys costs more than the last few percent save.
  const bool nearly_dense = !pattern.empty() && x.prefill() &&
                            PatternDensity(pattern, in.queries.rows, in.keys.rows) > kNearlyDense;
  return nearly_dense ? SparsePattern{} : std::move(pattern);
}

void Layer::Retain(Stream& x, const Pass& pass) const {
  if (!pass.policy.RetainsAt(x.phase(), index_)) return;
  LayerState& layer = pass.sequence.layer(index_);
  LayerCache& cache = layer.cache;
  const std::optional<Retained> kept =
      pass.policy.Retain(x.seen(), {cache.rows(), cache.position_lists(), {}}, pass.backend);
  if (pass.split != nullptr) pass.split->Agree(kept ? kept->rows : std::vector<TokenSet>(), "cache", index_);
  if (!kept) return;
  const std::vector<int32_t> before(cache.positions().begin(), cache.positions().end());
  const bool one_list = !cache.ragged();
  cache.Keep(kept->rows);
  if (!x.prefill() && one_list && !cache.ragged())
    RecordRemoved(pass.sequence, index_, TraceEventKind::kEvicted, before, cache.positions());
  if (kept->close_gap)
    CloseGap(cache, layer.sinks, attention_.head_dim, pass.sequence.RopeOf(shape().rope), pass.backend);
}

}  // namespace coppice
