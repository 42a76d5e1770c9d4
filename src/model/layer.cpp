// A pre-norm decoder layer, over tiles of the stream, with the policy's questions where their answers act.
//
//   q, k, v = norm(x) W_qkv
//   x'      = x + softmax(q k^T / sqrt(c)) v W_o
//   x''     = x' + FFN(norm(x'))
//
// Keys and values of a tile are stored before its queries attend, so a tile sees itself and all before it.
#include "model/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coppice {

namespace {

std::span<const int32_t> Slice(const std::vector<int32_t>& positions, int64_t begin, int64_t count) {
  return std::span(positions).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

int LongestTail(const Needs& needs) {
  int rows = 0;
  for (const int w : needs.mass_queries) rows = std::max(rows, w);
  for (const Needs::Units& u : needs.unit_scores) rows = std::max(rows, u.queries);
  return rows;
}

}  // namespace

Layer::Layer(int index, const ModelConfig& config, const LayerWeights& weights,
             std::span<const float> alibi_slopes)
    : index_(index), config_(config), weights_(weights) {
  const ModelShape& s = config.shape;
  attention_ = {.heads = s.heads,
                .kv_heads = s.kv_heads,
                .head_dim = s.head_dim,
                .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
                .window = s.window,
                .alibi_slopes = alibi_slopes};
}

void Layer::Forward(Stream& x, LayerCache& cache, LayerCounts& counts, const LayerContext& run) const {
  Observation& seen = x.Enter(index_);  // carries layer l-1's scores into this question
  x.Keep(run.policy.BeforeLayer(seen, run.be), index_, run.be);
  counts.kv_rows = x.rows();
  Attention(x, cache, run.policy.NeedsAt(index_), run);
  counts.query_rows = x.rows();
  x.Keep(run.policy.AfterAttention(seen, run.be), index_ + 1, run.be);
  const TokenSet ffn_rows = run.policy.RunFfn(seen, run.be);
  counts.ffn_rows = ffn_rows.size();
  Ffn(ffn_rows, x, run);
}

void Layer::Attention(Stream& x, LayerCache& cache, const Needs& needs, const LayerContext& run) const {
  Workspace& ws = run.ws;
  const bool last_row_only = IsLast() && run.last_row_only;
  const bool prefill = x.phase() == Phase::kPrefill;
  const ProductKind kv_kind = prefill ? ProductKind::kPrefill : ProductKind::kDecode;
  const ProductKind q_kind = prefill && !last_row_only ? ProductKind::kPrefill : ProductKind::kDecode;
  ws.key.Prepare(weights_.key, kv_kind, run.be);
  ws.value.Prepare(weights_.value, kv_kind, run.be);
  ws.query.Prepare(weights_.query, q_kind, run.be);
  ws.output.Prepare(weights_.output, q_kind, run.be);

  const bool observes = prefill && !last_row_only && !needs.empty();
  const int64_t tail = observes ? std::min<int64_t>(LongestTail(needs), x.rows()) : 0;
  ws.tail_q.Resize(DType::kF32, tail, ws.q.cols());

  const LayerCache::Fresh fresh = cache.Append(x.positions());
  for (int64_t begin = 0; begin < x.rows(); begin += ws.tile_rows) {
    ws.Tick(index_ + 0.5 * static_cast<double>(begin) / static_cast<double>(x.rows()));
    const int64_t rows = std::min(ws.tile_rows, x.rows() - begin);
    const std::span<const int32_t> positions = Slice(x.positions(), begin, rows);
    const MutableTensorView hidden = x.hidden().Rows(begin, rows);
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, rows);
    ApplyNorm(weights_.attention_norm, hidden, normed, run.be);
    StoreKeysValues(normed, positions, {fresh.keys.Rows(begin, rows), fresh.values.Rows(begin, rows)}, run);
    if (last_row_only) continue;
    Attend(normed, positions, cache, hidden, run);
    for (int64_t row = std::max(begin, x.rows() - tail); row < begin + rows; ++row) {
      std::memcpy(ws.tail_q.mutable_view().RowBytes(row - (x.rows() - tail)),
                  ws.q.view().RowBytes(row - begin), static_cast<size_t>(BytesOf(DType::kF32, ws.q.cols())));
    }
  }
  x.seen().ClearScores();
  if (observes) Observe(needs, x, cache, run);
  if (last_row_only) {
    x.KeepLastOnly(run.be);
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, 1);
    ApplyNorm(weights_.attention_norm, x.hidden(), normed, run.be);
    Attend(normed, x.positions(), cache, x.hidden(), run);
  }
}

void Layer::StoreKeysValues(const TensorView& normed, std::span<const int32_t> positions,
                            const LayerCache::Fresh& fresh, const LayerContext& run) const {
  const MutableTensorView k = run.ws.k.mutable_view().Rows(0, normed.rows);
  const MutableTensorView v = run.ws.v.mutable_view().Rows(0, normed.rows);
  run.ws.key(normed, k, run.be);
  run.ws.value(normed, v, run.be);
  if (!run.rope.cos.empty()) run.be.Rope(k, attention_.head_dim, positions, run.rope);
  run.be.Convert(k, fresh.keys);
  run.be.Convert(v, fresh.values);
}

void Layer::Attend(const TensorView& normed, std::span<const int32_t> positions, const LayerCache& cache,
                   MutableTensorView hidden, const LayerContext& run) const {
  const int64_t rows = normed.rows;
  const MutableTensorView q = run.ws.q.mutable_view().Rows(0, rows);
  const MutableTensorView attended = run.ws.attended.mutable_view().Rows(0, rows);
  const MutableTensorView out = run.ws.out.mutable_view().Rows(0, rows);
  run.ws.query(normed, q, run.be);
  if (!run.rope.cos.empty()) run.be.Rope(q, attention_.head_dim, positions, run.rope);
  // Keys after the tile's last position are not stored yet, or not filled: the causal rule keeps them out of
  // sight.
  const auto end = std::upper_bound(cache.positions().begin(), cache.positions().end(), positions.back());
  const int64_t keys = end - cache.positions().begin();
  run.be.Attention({attention_, q, cache.keys().Rows(0, keys), cache.values().Rows(0, keys), positions,
                    cache.positions().first(static_cast<size_t>(keys))},
                   attended);
  run.ws.output(attended, out, run.be);
  run.be.Add(out, hidden);
}

void Layer::Observe(const Needs& needs, Stream& x, const LayerCache& cache, const LayerContext& run) const {
  Observation& seen = x.seen();
  const TensorView tail = run.ws.tail_q.view();
  const auto last = [&](int queries) -> AttentionInput {
    const int64_t rows = std::min<int64_t>(queries, tail.rows);
    return {attention_,     tail.Rows(tail.rows - rows, rows),           cache.keys(),
            cache.values(), Slice(x.positions(), x.rows() - rows, rows), cache.positions()};
  };
  for (const int queries : needs.mass_queries) run.be.AttentionMass(last(queries), seen.AddMass(queries));
  for (const Needs::Units& u : needs.unit_scores) {
    run.be.UnitScores(last(u.queries), u.unit, seen.AddUnitScores(u));
  }
}

void Layer::Ffn(const TokenSet& rows, Stream& x, const LayerContext& run) const {
  if (rows.size() == 0) return;
  Workspace& ws = run.ws;
  const bool one_row = x.phase() == Phase::kDecode || (IsLast() && run.last_row_only);
  const ProductKind kind = one_row ? ProductKind::kDecode : ProductKind::kPrefill;
  const bool gated = !weights_.gate.weight.empty();
  if (gated) ws.gate_up[0].Prepare(weights_.gate, kind, run.be);
  ws.gate_up[1].Prepare(weights_.up, kind, run.be);
  ws.down.Prepare(weights_.down, kind, run.be);
  for (int64_t begin = 0; begin < rows.size(); begin += ws.tile_rows) {
    ws.Tick(index_ + 0.5 + 0.5 * static_cast<double>(begin) / static_cast<double>(rows.size()));
    const int64_t count = std::min(ws.tile_rows, rows.size() - begin);
    std::span<const int32_t> chosen;
    MutableTensorView in = ws.gathered.mutable_view().Rows(0, count);
    if (rows.IsAll()) {
      in = x.hidden().Rows(begin, count);
    } else {
      chosen = rows.rows().subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      run.be.GatherRows(x.hidden(), chosen, in);
    }
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, count);
    const MutableTensorView up = ws.up.mutable_view().Rows(0, count);
    const MutableTensorView out = ws.out.mutable_view().Rows(0, count);
    ApplyNorm(weights_.ffn_norm, in, normed, run.be);
    ws.gate_up[1](normed, up, run.be);
    if (gated) {
      const MutableTensorView gate = ws.gate.mutable_view().Rows(0, count);
      ws.gate_up[0](normed, gate, run.be);
      run.be.SiluMul(gate, up);
      ws.down(gate, out, run.be);
    } else {
      run.be.Gelu(up);
      ws.down(up, out, run.be);
    }
    if (rows.IsAll()) {
      run.be.Add(out, in);
    } else {
      run.be.ScatterAddRows(out, chosen, x.hidden());
    }
  }
}

void Layer::ApplyNorm(const Norm& norm, const TensorView& x, MutableTensorView y, Backend& be) const {
  const float eps = static_cast<float>(config_.norm_eps);
  if (norm.bias.empty()) {
    be.RmsNorm(x, norm.weight, eps, y);
  } else {
    be.LayerNorm(x, norm.weight, norm.bias, eps, y);
  }
}

}  // namespace coppice
