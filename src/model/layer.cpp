// A pre-norm decoder layer, over tiles of the stream, with the policy's questions where their answers act.
//
//   q, k, v = norm(x) W_qkv
//   x'      = x + softmax(q k^T / sqrt(c)) v W_o
//   x''     = x' + FFN(norm(x'))
//
// The attention, with what a policy may see and choose there, is in layer_attention.cpp.
#include "model/layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace coppice {

Layer::Layer(int index, const ModelConfig& config, const LayerWeights& weights,
             std::span<const float> alibi_slopes)
    : index_(index), config_(config), weights_(weights) {
  const ModelShape& s = config.shape;
  attention_ = {.heads = s.heads,
                .kv_heads = s.kv_heads,
                .head_dim = s.head_dim,
                .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
                .window = s.window,
                .alibi_slopes = alibi_slopes,
                .int8_values = Info(weights.output.weight.dtype).block_elements > 1};
}

void Layer::Forward(Stream& x, const LayerContext& run) const {
  x.Enter(index_);  // carries layer l-1's scores into this question
  x.Choose(DecodePoint::kBeforeLayer, run.policy, run.be);
  Attention(x, run);  // and the scores that the policy asked for
  x.Reach({index_, true});
  Retain(x, run);
  if (LastRowOnly(run)) x.KeepLastOnly(run.be);
  x.Choose(DecodePoint::kAfterAttention, run.policy, run.be);
  const TokenSet ffn_rows = x.prefill() ? run.policy.RunFfn(x.seen(), run.be) : TokenSet::All(x.rows());
  COPPICE_CHECK(x.in_front() == 0 || ffn_rows.IsAll());  // TokenPolicy::FirstChoice said so
  const TokenSet here = x.in_front() > 0 ? TokenSet::All(x.rows()) : ffn_rows;
  Ffn(here, here.IsAll() ? TokenSet::None(x.rows()) : run.policy.FillFrom(x.seen(), here), x, run);
  if (x.prefill() && x.sequence().trace != nullptr) Record(ffn_rows, x);
}

namespace {

// The mean of FFN outputs, summed row after row in fp64: tiles and threads change no bit.
class MeanOutput {
 public:
  MeanOutput(const TokenSet& from, int64_t hidden)
      : from_(from), sum_(from.size() > 0 ? static_cast<size_t>(hidden) : 0) {}

  void Add(std::span<const int32_t> rows, const TensorView& out) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!from_.Contains(rows[i])) continue;
      const std::span<const float> y = out.Row<float>(static_cast<int64_t>(i));
      for (size_t c = 0; c < sum_.size(); ++c) sum_[c] += y[c];
    }
  }
  // Adds the mean to the rows that are not in `ran`.
  void Fill(const TokenSet& ran, MutableTensorView hidden, Backend& be) const {
    Tensor mean(DType::kF32, 1, hidden.cols);
    for (size_t c = 0; c < sum_.size(); ++c)
      mean.mutable_view().Row<float>(0)[c] = static_cast<float>(sum_[c] / static_cast<double>(from_.size()));
    for (int64_t row = 0; row < ran.universe(); ++row) {
      if (!ran.Contains(row)) be.Add(mean.view(), hidden.Rows(row, 1));
    }
  }

 private:
  const TokenSet& from_;
  std::vector<double> sum_;  // [d]
};

}  // namespace

void Layer::Ffn(const TokenSet& rows, const TokenSet& fill_from, Stream& x, const LayerContext& run) const {
  SequenceState& sequence = x.sequence();
  (x.prefill() ? sequence.ledger.layer(index_).ffn_rows
               : sequence.step[static_cast<size_t>(index_)].ffn_rows) = rows.size();
  if (rows.size() == 0) return;
  Workspace& ws = run.ws;
  const bool one_row = !x.prefill() || LastRowOnly(run);
  const std::vector<Tile> tiles = TilesOf(rows.size(), one_row ? 1 : 0, ws.tile_rows);
  const bool gated = !weights_.gate.weight.empty();
  if (gated) {
    ws.gate_up.PrepareGated(weights_.gate, weights_.up, tiles, run.be);
  } else {
    ws.gate_up.Prepare(weights_.up, tiles, run.be);
  }
  ws.Pause();
  ws.down.Prepare(weights_.down, tiles, run.be);
  MeanOutput mean(fill_from, config_.shape.hidden);
  for (const auto& [begin, count, kind] : tiles) {
    ws.Tick(index_ + 0.5 + 0.5 * static_cast<double>(begin) / static_cast<double>(rows.size()));
    std::span<const int32_t> chosen;
    MutableTensorView in = ws.gathered.mutable_view().Rows(0, count);
    if (rows.IsAll()) {
      in = x.hidden().Rows(begin, count);
    } else {
      chosen = rows.rows().subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      run.be.GatherRows(x.hidden(), chosen, in);
    }
    const MutableTensorView normed = ws.normed.mutable_view().Rows(0, count);
    const MutableTensorView inner = ws.inner.mutable_view().Rows(0, count);
    ApplyNorm(weights_.ffn_norm, in, normed, run.be);
    ws.gate_up(normed, kind, ProductEnd::kStore, inner, run.be);
    if (!gated) run.be.Gelu(inner);
    if (rows.IsAll()) {
      ws.down(inner, kind, ProductEnd::kAdd, in, run.be);
    } else {
      const MutableTensorView out = ws.out.mutable_view().Rows(0, count);
      ws.down(inner, kind, ProductEnd::kStore, out, run.be);
      run.be.ScatterAddRows(out, chosen, x.hidden());
      if (fill_from.size() > 0) mean.Add(chosen, out);
    }
  }
  if (fill_from.size() > 0) mean.Fill(rows, x.hidden(), run.be);
}

void Layer::Record(const TokenSet& ffn_rows, Stream& x) const {
  const LayerCache& cache = x.sequence().cache[static_cast<size_t>(index_)];
  TraceLayer layer;
  for (const std::span<const int32_t> list : cache.position_lists()) {
    std::vector<int32_t> both;
    std::set_union(layer.kept.begin(), layer.kept.end(), list.begin(), list.end(), std::back_inserter(both));
    layer.kept = std::move(both);
  }
  // Where positions are slots, the trace tells the tokens by their own.
  const std::vector<int32_t>& moved = x.sequence().sinks[static_cast<size_t>(index_)].positions;
  std::copy(moved.begin(), moved.end(), layer.kept.begin());
  const std::span<const int32_t> positions = x.seen().positions;  // of rows taken over too: they ran once
  for (const int32_t row : ffn_rows.ToRows()) layer.ffn.push_back(positions[static_cast<size_t>(row)]);
  layer.rows_per_head = cache.rows();
  layer.density = x.sequence().ledger.layer(index_).density;
  x.sequence().trace->Layer(std::move(layer));
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
