// The attention of a layer: keys and values of all rows first, then, tile by tile, queries, attention and
// output. Where a policy wants scores, the queries pass through an Observer on their way; where it chooses a
// pattern, all of them are computed before any attends.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "model/close_gap.h"
#include "model/layer.h"

namespace coppice {

namespace {

std::span<const int32_t> Slice(std::span<const int32_t> positions, const Tile& tile) {
  return positions.subspan(static_cast<size_t>(tile.begin), static_cast<size_t>(tile.count));
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

// kv heads that attend in one call: as many as take some tenths of a second at 100 GFLOP/s per thread, so that
// nobody who leaves or waits for a turn meets a longer stretch. A tile of 512 rows over 32k keys with the heads of a
// 7b shape is 275 GFLOP. Heads and not rows, because a head's keys then pass through the caches once.
int HeadsOfCall(const AttentionInput& in, int threads) {
  constexpr double kFlopsOfThread = 25e9;
  const AttentionShape& s = in.shape;
  const double of_head = 4.0 * static_cast<double>(in.queries.rows) * static_cast<double>(in.keys.rows) *
                         (s.heads / s.kv_heads) * s.head_dim;
  const double heads = kFlopsOfThread * threads / of_head;
  return heads >= s.kv_heads ? s.kv_heads : std::max(1, static_cast<int>(heads));
}

}  // namespace

void Layer::Attention(Stream& x, const LayerContext& run) const {
  Workspace& ws = run.ws;
  SequenceState& sequence = x.sequence();
  LayerCache& cache = sequence.cache[static_cast<size_t>(index_)];
  if (sequence.cold && !x.attends_all()) sequence.cold->Load(index_, x.attended_blocks(), cache);

  const std::vector<Tile> kv_tiles = TilesOf(x.rows(), x.prefill() ? 0 : 1, ws.tile_rows);
  const std::vector<Tile> q_tiles =
      LastRowOnly(run) ? std::vector<Tile>{{x.rows() - 1, 1, ProductKind::kDecode}} : kv_tiles;
  StoreKeysValues(x, kv_tiles, run);
  const AttendedKeys keys = KeysOf(x, run);
  // ALiBi's distances must stay those of the positions.
  const std::vector<int32_t> positions =
      x.MaskPositions(attention_.alibi_slopes.empty() ? run.policy.revive_mask() : ReviveMask::kCausal);

  x.seen().ClearScores();
  if (!x.prefill()) x.seen().positions = keys.positions.front();
  const Needs needs = NeedsOf(x, run);
  Observer observer(x.phase(), needs, attention_, keys, positions, run.rope, ws, UnitsOf(x, run));
  // Rows whose attention nobody needs, but whose queries score.
  const std::vector<Tile> observed = LastRowOnly(run) ? kv_tiles : std::vector<Tile>{};
  ws.query.Prepare(weights_.query, LastRowOnly(run) && !needs.empty() ? kv_tiles : q_tiles, run.be);
  ws.output.Prepare(weights_.output, q_tiles, run.be);
  for (const Tile& tile : observed) {
    if (tile.begin + tile.count > observer.first_row()) observer.Add(tile, Queries(x, tile, run), run.be);
  }

  const SparsePattern pattern = ChoosePattern(x, q_tiles, keys, positions, run);
  ws.packed.Begin(attention_.kv_heads, keys.keys.rows);
  for (const Tile& tile : q_tiles) {
    ws.Tick(index_ + 0.25 + 0.25 * static_cast<double>(tile.begin) / static_cast<double>(x.rows()));
    const TensorView q =
        pattern.empty() ? Queries(x, tile, run) : ws.all_q.view().Rows(tile.begin, tile.count);
    const MutableTensorView attended = ws.attended.mutable_view().Rows(0, tile.count);
    const AttentionInput in{
        attention_, q, keys.keys, keys.values, Slice(positions, tile), keys.positions.front(), &ws.packed};
    const bool current = tile.kind == ProductKind::kDecode;
    if (pattern.empty() || (!x.prefill() && !current)) {
      Attend(in, keys, tile.kind, attended, run);
    } else if (current) {
      run.be.DecodeAttention(in, pattern, attended);
    } else {
      run.be.SparseAttention(in, pattern, tile.begin, attended);
    }
    ws.output(attended, tile.kind, ProductEnd::kAdd, x.hidden().Rows(tile.begin, tile.count), run.be);
    if (observed.empty() && tile.begin + tile.count > observer.first_row()) observer.Add(tile, q, run.be);
  }
  observer.Finish(x.seen(), run.be);

  const double density =
      pattern.empty() ? 1 : PatternDensity(pattern, x.prefill() ? x.rows() : 1, keys.keys.rows);
  const auto query_rows = LastRowOnly(run) ? 1 : x.rows();
  if (x.prefill()) {
    LayerCounts& counts = sequence.ledger.layer(index_);
    counts = {.kv_rows = x.rows(),
              .query_rows = query_rows,
              .ffn_rows = 0,
              .taken_over = x.in_front(),
              .density = density};
  } else {
    sequence.step[static_cast<size_t>(index_)] = {.kv_rows = x.rows(),
                                                  .query_rows = query_rows,
                                                  .ffn_rows = 0,
                                                  .keys = keys.keys.rows,
                                                  .density = density};
    if (sequence.trace != nullptr) {
      sequence.trace->Attended(index_, std::llround(density * static_cast<double>(keys.keys.rows)));
      sequence.trace->Event(index_, TraceEventKind::kRevived,
                            std::span(x.positions()).first(x.positions().size() - 1));
    }
  }
}

void Layer::StoreKeysValues(Stream& x, const std::vector<Tile>& tiles, const LayerContext& run) const {
  LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  std::vector<int32_t> rows(x.positions().size());
  if (cache.rows() == 0 || x.positions().front() > cache.positions().back()) {
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(cache.rows()));
    cache.Append(x.positions());
  } else {
    rows = cache.Insert(x.positions());
  }
  run.ws.key_value.PrepareStacked(weights_.key, weights_.value, tiles, run.be);
  for (const Tile& tile : tiles) {
    run.ws.Tick(index_ + 0.25 * static_cast<double>(tile.begin) / static_cast<double>(x.rows()));
    StoreTile(x, tile, Slice(rows, tile), run);
  }
  x.ReachDepth(index_ + 1);
}

void Layer::StoreTile(Stream& x, const Tile& tile, std::span<const int32_t> rows,
                      const LayerContext& run) const {
  Workspace& ws = run.ws;
  LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  const std::span<const int32_t> positions = Slice(x.positions(), tile);
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, tile.count);
  const MutableTensorView kv = ws.kv.mutable_view().Rows(0, tile.count);
  const MutableTensorView k = kv.Cols(0, kv.cols / 2);
  const MutableTensorView v = kv.Cols(kv.cols / 2, kv.cols / 2);
  ApplyNorm(weights_.attention_norm, x.hidden().Rows(tile.begin, tile.count), normed, run.be);
  ws.key_value(normed, tile.kind, ProductEnd::kStore, kv, run.be);
  if (!run.rope.cos.empty()) run.be.Rope(k, attention_.head_dim, positions, run.rope);

  UnitKeys* units = UnitsOf(x, run);
  PageBounds* pages = PagesOf(x, run);
  ForRuns(rows, [&](int64_t row, int64_t begin, int64_t count) {
    run.be.Convert(k.Rows(begin, count), cache.mutable_keys().Rows(row, count));
    run.be.Convert(v.Rows(begin, count), cache.mutable_values().Rows(row, count));
    const auto of = positions.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    if (units != nullptr) units->AddKeys(of, cache.keys().Rows(row, count));
    if (pages != nullptr) pages->AddKeys(of, cache.keys().Rows(row, count));
  });
}

// In the order in which a fresh run adds them: sums in fp32 depend on it.
template <typename Summary>
void Layer::AddKeysInFront(Stream& x, Summary& summary) const {
  if (x.in_front() == 0) return;
  const LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  summary.AddKeys(cache.positions().first(static_cast<size_t>(x.in_front())),
                  cache.keys().Rows(0, x.in_front()));
}

UnitKeys* Layer::UnitsOf(Stream& x, const LayerContext& run) const {
  std::unique_ptr<UnitKeys>& units = x.sequence().unit_keys[static_cast<size_t>(index_)];
  if (!units && x.prefill()) {
    const Needs later = run.policy.NeedsAt(Phase::kDecode, index_);
    COPPICE_CHECK(later.unit_scores.size() <= 1);
    for (const Needs::Units& u : later.unit_scores) {
      units = std::make_unique<UnitKeys>(attention_, u.queries, u.unit, u.pool, x.sequence().prompt_tokens);
      AddKeysInFront(x, *units);
    }
  }
  return units.get();
}

PageBounds* Layer::PagesOf(Stream& x, const LayerContext& run) const {
  std::unique_ptr<PageBounds>& pages = x.sequence().pages[static_cast<size_t>(index_)];
  if (!pages && x.prefill() && run.policy.PageSize() > 0 &&
      run.policy.ChoosesPattern(Phase::kDecode, index_)) {
    pages = std::make_unique<PageBounds>(run.policy.PageSize(),
                                         int64_t{attention_.kv_heads} * attention_.head_dim);
    AddKeysInFront(x, *pages);
  }
  return pages.get();
}

AttendedKeys Layer::KeysOf(Stream& x, const LayerContext& run) const {
  const LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  const AttendedKeys all{cache.keys(), cache.values(), cache.position_lists()};
  if (x.attends_all()) return all;
  const std::vector<int32_t> rows = cache.RowsOf(x.attended());
  COPPICE_CHECK(rows.size() == x.attended().size());  // whoever is attended has a key here
  const auto count = static_cast<int64_t>(rows.size());
  if (count == cache.rows()) return all;
  run.ws.some_keys.Resize(cache.dtype(), count, cache.width());
  run.ws.some_values.Resize(cache.dtype(), count, cache.width());
  run.be.GatherRows(cache.keys(), rows, run.ws.some_keys.mutable_view());
  run.be.GatherRows(cache.values(), rows, run.ws.some_values.mutable_view());
  return {run.ws.some_keys.view(), run.ws.some_values.view(), {x.attended()}};
}

// [tile.count, heads * head_dim], after RoPE; stands in ws.q until the next call.
TensorView Layer::Queries(Stream& x, const Tile& tile, const LayerContext& run) const {
  const MutableTensorView normed = run.ws.normed.mutable_view().Rows(0, tile.count);
  const MutableTensorView q = run.ws.q.mutable_view().Rows(0, tile.count);
  ApplyNorm(weights_.attention_norm, x.hidden().Rows(tile.begin, tile.count), normed, run.be);
  run.ws.query(normed, tile.kind, ProductEnd::kStore, q, run.be);
  if (!run.rope.cos.empty()) run.be.Rope(q, attention_.head_dim, Slice(x.positions(), tile), run.rope);
  return q;
}

// In decode a pattern is for the current token alone: there are few others, if any.
SparsePattern Layer::ChoosePattern(Stream& x, const std::vector<Tile>& tiles, const AttendedKeys& keys,
                                   std::span<const int32_t> query_positions, const LayerContext& run) const {
  if (!run.policy.ChoosesPattern(x.phase(), index_) || keys.ragged()) return {};
  if (x.prefill() && LastRowOnly(run)) return {};
  Tensor& all_q = run.ws.all_q;
  all_q.Resize(DType::kF32, x.rows(), run.ws.q.cols());
  for (const Tile& tile : tiles) {
    run.ws.Pause();
    const TensorView q = Queries(x, tile, run);
    std::memcpy(all_q.mutable_view().RowBytes(tile.begin), q.data, static_cast<size_t>(q.stride * q.rows));
  }
  const int64_t queries = x.prefill() ? x.rows() : 1;
  AttentionScene scene;
  scene.phase = x.phase();
  scene.layer = index_;
  scene.pruned = x.rows() < x.sequence().entered;
  scene.in = {attention_,  all_q.view().Rows(x.rows() - queries, queries),     keys.keys,
              keys.values, query_positions.last(static_cast<size_t>(queries)), keys.positions.front()};
  if (const PageBounds* pages = PagesOf(x, run)) {
    scene.page_min = pages->minimum();
    scene.page_max = pages->maximum();
  }
  scene.pause = [&run] { run.ws.Pause(); };
  SparsePattern pattern = run.policy.Pattern(scene, run.be);
  // Gathering keys costs more than the last few percent save.
  const bool nearly_dense =
      !pattern.empty() && x.prefill() && PatternDensity(pattern, queries, keys.keys.rows) > kNearlyDense;
  return nearly_dense ? SparsePattern{} : std::move(pattern);
}

void Layer::Attend(const AttentionInput& in, const AttendedKeys& keys, ProductKind kind,
                   MutableTensorView out, const LayerContext& run) const {
  const auto attend = [&](const AttentionInput& some, MutableTensorView to) {
    kind == ProductKind::kDecode ? run.be.DecodeAttention(some, {}, to) : run.be.Attention(some, to);
  };
  const auto visible = [&](std::span<const int32_t> positions) {
    // Keys behind the tile's last position are seen by none of it.
    const auto end = std::upper_bound(positions.begin(), positions.end(), in.query_positions.back());
    return end - positions.begin();
  };
  const auto cut = [](AttentionInput one, int64_t count) {
    one.keys = one.keys.Rows(0, count);
    one.values = one.values.Rows(0, count);
    one.key_positions = one.key_positions.first(static_cast<size_t>(count));
    return one;
  };
  const int together = keys.ragged() ? 1 : HeadsOfCall(in, run.be.threads());
  if (together == attention_.kv_heads) return attend(cut(in, visible(in.key_positions)), out);
  const int64_t columns = int64_t{attention_.heads / attention_.kv_heads} * attention_.head_dim;
  for (int g = 0; g < attention_.kv_heads; g += together) {
    if (g > 0) run.ws.Pause();
    const int count = std::min(together, attention_.kv_heads - g);
    const std::span<const int32_t> positions = keys.positions[keys.ragged() ? static_cast<size_t>(g) : 0];
    attend(cut(HeadInput(in, g, positions, count), visible(positions)),
           out.Cols(g * columns, count * columns));
  }
}

// What nobody reads is not computed: the last layer's scores matter to eviction alone.
Needs Layer::NeedsOf(const Stream& x, const LayerContext& run) const {
  if (LastRowOnly(run) && !run.policy.RetainsAt(x.phase(), index_)) return {};
  return run.policy.NeedsAt(x.phase(), index_);
}

void Layer::Retain(Stream& x, const LayerContext& run) const {
  if (!run.policy.RetainsAt(x.phase(), index_)) return;
  LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  const std::optional<Retained> kept =
      run.policy.Retain(x.seen(), {cache.rows(), cache.position_lists(), {}}, run.be);
  if (!kept) return;
  const bool traced = !x.prefill() && x.sequence().trace != nullptr && !cache.ragged();
  std::vector<int32_t> before;
  if (traced) before.assign(cache.positions().begin(), cache.positions().end());
  cache.Keep(kept->rows);
  if (traced && !cache.ragged()) {
    std::vector<int32_t> gone;
    std::set_difference(before.begin(), before.end(), cache.positions().begin(), cache.positions().end(),
                        std::back_inserter(gone));
    x.sequence().trace->Event(index_, TraceEventKind::kEvicted, gone);
  }
  if (kept->close_gap) {
    CloseGap(cache, x.sequence().sinks[static_cast<size_t>(index_)], attention_.head_dim, run.rope, run.be);
  }
}

}  // namespace coppice
