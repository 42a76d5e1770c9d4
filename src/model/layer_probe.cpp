// The attention of a layer in which a policy chooses the rows that attend (TokenPolicy::RunAttention): the
// keys of all rows and the queries that score come first, then the answer, then values, queries, attention
// and output of the chosen rows alone. With all rows chosen, every row gets the bits of Layer::Attention.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "model/layer.h"
#include "model/observe.h"
#include "model/record.h"

namespace coppice {

namespace {

std::vector<int32_t> AllRows(int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<int32_t> PositionsOf(const TokenSet& rows, std::vector<int32_t> positions) {
  if (rows.IsAll()) return positions;
  std::vector<int32_t> some;
  for (const int32_t row : rows.rows()) some.push_back(positions[static_cast<size_t>(row)]);
  return some;
}

template <typename List>
std::span<const int32_t> Slice(const List& list, const Tile& tile) {
  return std::span<const int32_t>(list).subspan(static_cast<size_t>(tile.begin),
                                                static_cast<size_t>(tile.count));
}

// Keys and values of one type have the same bits alone as stacked. Matrices of two types may share an
// arithmetic when they are stacked that one of them does not have alone (Backend::PackParts), and dense runs
// stack them.
bool HalvesAlone(const LayerWeights& w) { return w.key.weight.dtype == w.value.weight.dtype; }

// Prepares the keys' or the values' matrix, or, where it does not stand alone, both.
void PrepareHalf(const LayerWeights& w, const Linear& half, const std::vector<Tile>& tiles, Workspace& ws,
                 Backend& be) {
  if (HalvesAlone(w)) return ws.key_value.Prepare(half, tiles, ws.kept, be);
  ws.key_value.PrepareStacked(w.key, w.value, tiles, ws.kept, be);
}

// How far a tile of `of` rows is within its layer: its attention is the first half of it, and this step
// begins at `from`.
void Tick(int layer, double from, const Tile& tile, int64_t of, const RunControl& control) {
  constexpr double kStep = 0.15;
  control.Tick(layer + from + kStep * static_cast<double>(tile.begin) / static_cast<double>(of));
}

}  // namespace

bool Layer::Probes(const Stream& x, const Pass& pass) const {
  return x.prefill() && pass.policy.ProbesAttention(index_);
}

void Layer::ProbedAttention(Stream& x, const Pass& pass) const {
  // TokenPolicy::FirstChoice and PolicyFacts::one_process promised both.
  COPPICE_CHECK(x.in_front() == 0 && pass.split == nullptr);
  StoreKeys(x, pass);
  ScoreBeforeAttention(x, pass);
  const TokenSet rows = ChooseAttending(x, pass);
  StoreValues(rows, x, pass);
  AttendChosen(rows, x, pass);
  const int64_t queries = LastRowOnly(x) ? 1 : rows.size();
  RecordAttention(x, {.stored = rows.size(), .queries = queries, .keys = rows.size()});
}

TokenSet Layer::ChooseAttending(Stream& x, const Pass& pass) const {
  TokenSet rows = pass.policy.RunAttention(x.seen(), pass.backend);
  COPPICE_CHECK(rows.universe() == x.rows() && rows.Contains(x.rows() - 1));
  LayerCache& cache = pass.sequence.layer(index_).cache;
  if (!rows.IsAll()) cache.Keep({&rows, 1});
  return rows;
}

void Layer::StoreKeys(Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  LayerCache& cache = pass.sequence.layer(index_).cache;
  cache.Add(x.positions());
  const std::vector<Tile> tiles = x.Tiles(ws.tile_rows);
  PrepareHalf(weights_, weights_.key, tiles, ws, pass.backend);
  for (const Tile& tile : tiles) {
    Tick(index_, 0, tile, x.rows(), pass.control);
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, tile.count);
    const MutableTensorView kv = ws.kv.mutable_view().Rows(0, tile.count);
    const MutableTensorView k = kv.Cols(0, cache.width());
    ApplyNorm(weights_.attention_norm, x.hidden().Rows(tile.begin, tile.count), normed, pass.backend);
    ws.key_value(normed, tile.kind, ProductEnd::kStore, HalvesAlone(weights_) ? k : kv, pass.backend);
    FinishHeads(weights_.key_norm, Slice(x.positions(), tile), pass.sequence, k, pass.backend);
    pass.backend.Convert(k, cache.mutable_keys().Rows(tile.begin, tile.count));
  }
}

void Layer::ScoreBeforeAttention(Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  const Needs needs = NeedsOf(x, pass);
  for (const Needs::Mass& mass : needs.masses) COPPICE_CHECK(mass.queries != Needs::kAllQueries);
  x.seen().ClearScores();
  const AttentionFrame frame = FrameOf(x, /*in_place=*/false, pass);
  Observer observer(x.phase(), needs, frame, nullptr, pass);
  const std::vector<Tile> tiles = x.Tiles(ws.tile_rows);
  std::vector<Tile> scoring;
  for (const Tile& tile : tiles) {
    const int64_t begin = std::max(tile.begin, observer.first_row());
    const int64_t count = tile.begin + tile.count - begin;
    if (count > 0) scoring.push_back({begin, count, tile.kind});
  }
  // The queries of AttendChosen read the same weight: several of the prompt's rows, or the last one's alone.
  ws.query.Prepare(weights_.query, LastRowOnly(x) ? scoring : tiles, ws.kept, pass.backend);
  for (const Tile& tile : scoring) observer.Add(tile, Queries(x, tile, pass));
  observer.Finish(x.seen());
}

MutableTensorView Layer::RowsOfTile(const TokenSet& rows, const Tile& tile, Stream& x,
                                    const Pass& pass) const {
  if (rows.IsAll()) return x.hidden().Rows(tile.begin, tile.count);
  const MutableTensorView gathered = pass.workspace.gathered.mutable_view().Rows(0, tile.count);
  pass.backend.GatherRows(x.hidden(), Slice(rows.rows(), tile), gathered);
  return gathered;
}

void Layer::StoreValues(const TokenSet& rows, Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  LayerState& layer = pass.sequence.layer(index_);
  const std::vector<Tile> tiles = TilesOf(rows.size(), 0, ws.tile_rows);
  PrepareHalf(weights_, weights_.value, tiles, ws, pass.backend);
  for (const Tile& tile : tiles) {
    Tick(index_, 0.15, tile, rows.size(), pass.control);
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, tile.count);
    const int64_t width = layer.cache.width();
    const MutableTensorView kv = ws.kv.mutable_view().Rows(0, tile.count);
    const MutableTensorView v = kv.Cols(HalvesAlone(weights_) ? 0 : width, width);
    ApplyNorm(weights_.attention_norm, RowsOfTile(rows, tile, x, pass), normed, pass.backend);
    ws.key_value(normed, tile.kind, ProductEnd::kStore, HalvesAlone(weights_) ? v : kv, pass.backend);
    if (!weights_.value_norm.weight.empty()) ApplyNorm(weights_.value_norm, v, v, pass.backend);
    pass.backend.Convert(v, layer.cache.mutable_values().Rows(tile.begin, tile.count));
  }
  BeginSummaries(x, pass);
  AddToSummaries(layer, AllRows(layer.cache.rows()));
}

void Layer::AttendChosen(const TokenSet& rows, Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  AttentionFrame frame = FrameOf(x, /*in_place=*/false, pass);
  frame.query_positions = PositionsOf(rows, x.positions());
  std::vector<Tile> tiles = TilesOf(rows.size(), 0, ws.tile_rows);
  if (LastRowOnly(x)) tiles = {{rows.size() - 1, 1, ProductKind::kDecode}};
  PrepareOutput(tiles, ws, be);
  ws.packed.Begin(attention_.kv_heads, frame.keys.rows);
  for (const Tile& tile : tiles) {
    Tick(index_, 0.3, tile, rows.size(), pass.control);
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, tile.count);
    const MutableTensorView q = ws.q.mutable_view().Rows(0, tile.count);
    const MutableTensorView attended = ws.attended.mutable_view().Rows(0, tile.count);
    const MutableTensorView residual = RowsOfTile(rows, tile, x, pass);
    ApplyNorm(weights_.attention_norm, residual, normed, be);
    ws.query(normed, tile.kind, ProductEnd::kStore, q, be);
    AttentionInput in = frame.Input(q, tile.begin);
    FinishQueries(in.query_positions, pass.sequence, q, be);
    in.packed = &ws.packed;
    Attend(frame, in, tile.kind, attended, pass.control, be);
    if (rows.IsAll()) {
      FinishAttention({residual, attended, tile.kind}, ProductEnd::kAdd, residual, ws, be);
      continue;
    }
    const MutableTensorView out = ws.out.mutable_view().Rows(0, tile.count);
    FinishAttention({residual, attended, tile.kind}, ProductEnd::kStore, out, ws, be);
    be.ScatterAddRows(out, Slice(rows.rows(), tile), x.hidden());
  }
}

}  // namespace coppice
