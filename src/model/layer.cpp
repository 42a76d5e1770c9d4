// A decoder layer, over tiles of the stream. The layer asks the policy where an answer takes effect.
//
//   q, k, v = norm(x) W_qkv
//   x'      = x + softmax(q k^T / sqrt(c)) v W_o
//   x''     = x' + FFN(norm(x'))
//
// A layer with a state has its mixer in place of the attention (recurrent_mixer.h). A layer that mixes
// nothing has x' = x, and one without an FFN x'' = x'.
//
// Which of these norms, and of those of heads and of what is added to x, a model has, its weights say.
// layer_attention.cpp has the attention, including the policy's scores, patterns and evictions.
#include "model/layer.h"

#include <cmath>
#include <vector>

#include "model/record.h"

namespace coppice {

namespace {

// AttentionShape::key_bits of a quantised layer. A bias can make keys so long (Qwen 2) that a hundredth of q
// . k is much. Keys with a norm, or in wide heads, have a large part in common, which leaves few of 8 bits to
// what differs: the divergence of Gemma 3 270M in Q8_0 is 0.0026 nats with 8 bits, and 0.0019 with 16.
int KeyBitsOf(const LayerShape& shape, const LayerWeights& weights) {
  if (!weights.key.bias.empty()) return 0;
  return weights.key_norm.weight.empty() && shape.head_dim <= 128 ? 8 : 16;
}

}  // namespace

AttentionShape AttentionOf(const ModelConfig& config, int layer, const LayerWeights& weights,
                           std::span<const float> alibi_slopes) {
  const LayerShape& s = config.shape.AnyLayer(layer);
  if (!s.attends()) return {};
  const bool is_quantised = Info(weights.output.weight.dtype).block_elements > 1;
  return {.heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .scale = AttentionScale(config, s),
          .window = s.window,
          .alibi_slopes = alibi_slopes,
          .sinks = weights.sinks.empty() ? std::span<const float>() : weights.sinks.Row<float>(0),
          .int8_values = is_quantised,
          .key_bits = is_quantised ? KeyBitsOf(s, weights) : 0};
}

Layer::Layer(int index, const ModelConfig& config, const LayerWeights& weights,
             std::span<const float> alibi_slopes)
    : index_(index),
      shape_(config.shape.AnyLayer(index)),
      config_(config),
      weights_(weights),
      attention_(AttentionOf(config, index, weights, alibi_slopes)) {
  if (shape_.has_state()) recurrent_.emplace(index, config, weights);
}

void Layer::Forward(Stream& x, const Pass& pass) const {
  x.Enter(index_);  // the policy still sees the scores of layer l-1
  x.seen().pause = [&pass] { pass.control.Pause(); };
  x.Choose(DecodePoint::kBeforeLayer, pass);  // drops rows, or takes tokens back
  Mix(x, pass);                               // x', and the scores that the policy asked for
  x.Reach({index_, true});
  Retain(x, pass);  // evicts keys and values
  if (LastRowOnly(x)) x.KeepLastOnly(pass.backend);
  x.Choose(DecodePoint::kAfterAttention, pass);
  const TokenSet rows = FfnRows(x, pass);
  Ffn(rows, x, pass);  // x'' of these rows; the others keep x'
  RecordFfn(x, rows);
  EndRows(x, pass);
}

void Layer::Mix(Stream& x, const Pass& pass) const {
  if (shape().attends()) return Attention(x, pass);
  pass.workspace.Fit(shape());
  if (recurrent_) {
    recurrent_->Forward(x, LastRowOnly(x), pass);
  } else {
    x.seen().ClearScores();
    RecordAttention(x, {.stored = x.rows(), .queries = LastRowOnly(x) ? 1 : x.rows()});
  }
  x.SetDepth(index_ + 1);
}

void Layer::EndRows(Stream& x, const Pass& pass) const {
  if (weights_.own_embedding.table.empty() && weights_.scale == 1) return;
  const bool single = x.prefill() && LastRowOnly(x);
  const std::vector<Tile> all = {{0, 1, ProductKind::kDecode}};
  if (single && !pass.leads()) return;
  End(single ? all : x.Tiles(pass.workspace.tile_rows), x.Tokens(), x.hidden(), pass.workspace, pass.backend);
}

TokenSet Layer::FfnRows(Stream& x, const Pass& pass) const {
  if (!x.prefill() || !shape().has_ffn()) return TokenSet::All(x.rows());
  TokenSet rows = pass.policy.RunFfn(x.seen(), pass.backend);
  if (pass.split != nullptr) pass.split->Agree(rows, "FFN", index_);
  return x.BehindFront(rows);
}

namespace {

// The mean of FFN outputs, summed row by row in fp64, so that it does not depend on tiles or threads.
class MeanOutput {
 public:
  MeanOutput(const TokenSet& from, int64_t hidden)
      : from_(from), sum_(from.size() > 0 ? static_cast<size_t>(hidden) : 0) {}

  void Add(std::span<const int32_t> rows, const TensorView& out) {
    const HostRows host(out);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!from_.Contains(rows[i])) continue;
      const std::span<const float> y = host.view().Row<float>(static_cast<int64_t>(i));
      for (size_t c = 0; c < sum_.size(); ++c) sum_[c] += y[c];
    }
  }
  // Adds the mean to the rows that are not in `ran`.
  void Fill(const TokenSet& ran, MutableTensorView hidden, Backend& be) const {
    Tensor mean(DType::kF32, 1, hidden.cols);
    for (size_t c = 0; c < sum_.size(); ++c)
      mean.mutable_view().Row<float>(0)[c] = static_cast<float>(sum_[c] / static_cast<double>(from_.size()));
    Tensor where_rows_are(DType::kF32, 1, hidden.cols, hidden.memory);
    CopyRows(mean.view(), where_rows_are.mutable_view());
    for (int64_t row = 0; row < ran.universe(); ++row) {
      if (!ran.Contains(row)) be.Add(where_rows_are.view(), hidden.Rows(row, 1));
    }
  }

 private:
  const TokenSet& from_;
  std::vector<double> sum_;  // [d]
};

}  // namespace

void Layer::Ffn(const TokenSet& rows, Stream& x, const Pass& pass) const {
  const TokenSet own = x.Own(rows);
  if (own.size() == 0 || !shape().has_ffn()) return;
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  // A mixture wants many rows at once, also where several processes have rows here and there.
  const bool in_place = rows.IsAll() && !(has_mixture() && x.deal().processes() > 1);
  const int64_t tile_rows = has_mixture() ? kMixtureRows : ws.tile_rows;
  std::vector<Tile> tiles = {{0, 1, ProductKind::kDecode}};
  if (!x.prefill() || !LastRowOnly(x))
    tiles = in_place ? x.Tiles(tile_rows) : TilesOf(own.size(), 0, tile_rows);
  if (!has_mixture()) PrepareFfn(tiles, ws, pass.control, be);
  ws.mixture.experts_read = 0;
  const TokenSet fill_from = rows.IsAll() ? TokenSet::None(x.rows()) : pass.policy.FillFrom(x.seen(), rows);
  MeanOutput mean(fill_from, config_.shape.hidden);
  const std::vector<int32_t> of_own = in_place ? std::vector<int32_t>() : own.ToRows();
  for (const auto& [begin, count, kind] : tiles) {
    const int64_t of = in_place ? rows.size() : own.size();
    pass.control.Tick(index_ + 0.5 + 0.5 * static_cast<double>(begin) / static_cast<double>(of));
    if (in_place) {
      const MutableTensorView in = x.hidden().Rows(begin, count);
      if (has_mixture()) {
        be.Add(Mixture(in, kind, ws, pass.control, be), in);
      } else {
        FfnTile(in, kind, ProductEnd::kAdd, in, ws, be);
      }
    } else {
      const auto chosen = std::span(of_own).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      const TensorView out = FfnOfRows(chosen, kind, x, pass);
      be.ScatterAddRows(out, chosen, x.hidden());
      if (fill_from.size() > 0) mean.Add(chosen, out);
    }
  }
  if (fill_from.size() > 0) mean.Fill(rows, x.hidden(), be);
  if (x.prefill()) x.sequence().ledger.layer(index_).experts_read = ws.mixture.experts_read;
  if (pass.split != nullptr) pass.split->computed.ffn += own.size();
}

TensorView Layer::FfnOfRows(std::span<const int32_t> rows, ProductKind kind, Stream& x,
                            const Pass& pass) const {
  Workspace& ws = pass.workspace;
  const int64_t count = std::ssize(rows);
  if (has_mixture()) {
    ws.mixture.gathered.Resize(DType::kF32, count, config_.shape.hidden);
    const MutableTensorView in = ws.mixture.gathered.mutable_view();
    pass.backend.GatherRows(x.hidden(), rows, in);
    return Mixture(in, kind, ws, pass.control, pass.backend);
  }
  const MutableTensorView in = ws.gathered.mutable_view().Rows(0, count);
  const MutableTensorView out = ws.out.mutable_view().Rows(0, count);
  pass.backend.GatherRows(x.hidden(), rows, in);
  FfnTile(in, kind, ProductEnd::kStore, out, ws, pass.backend);
  return out;
}

void Layer::PrepareFfn(const std::vector<Tile>& tiles, Workspace& ws, const RunControl& control,
                       Backend& be) const {
  if (weights_.gate.weight.empty()) {
    ws.gate_up.Prepare(weights_.up, tiles, ws.kept, be);
  } else {
    const Activation activation = ActivationOf(config_.ffn);
    ws.gate_up.PrepareGated(weights_.gate, weights_.up, activation, tiles, ws.kept, be);
  }
  control.Pause();
  ws.down.Prepare(weights_.down, tiles, ws.kept, be);
}

void Layer::Activate(MutableTensorView x, Backend& be) const {
  if (config_.ffn == FfnKind::kReluSquared) return be.GateMul(x, x, ActivationOf(config_.ffn));
  be.Gelu(x);
}

void Layer::FfnTile(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y, Workspace& ws,
                    Backend& be) const {
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, x.rows);
  const MutableTensorView inner = ws.inner.mutable_view().Rows(0, x.rows);
  ApplyNorm(weights_.ffn_norm, x, normed, be);
  ws.gate_up(normed, kind, ProductEnd::kStore, inner, be);
  if (weights_.gate.weight.empty()) Activate(inner, be);
  Finish({ws.down, weights_.ffn_post_norm}, inner, kind, end, y, ws, be);
}

void Layer::Finish(Ending with, const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y,
                   Workspace& ws, Backend& be) const {
  if (with.post_norm.weight.empty()) return with.product(x, kind, end, y, be);
  const MutableTensorView out = end == ProductEnd::kAdd ? ws.out.mutable_view().Rows(0, x.rows) : y;
  with.product(x, kind, ProductEnd::kStore, out, be);
  ApplyPostNorm(with.post_norm, out, be);
  if (end == ProductEnd::kAdd) be.Add(out, y);
}

namespace {

void NormRows(const Norm& norm, double eps, const TensorView& x, MutableTensorView y, Backend& be) {
  if (norm.weight.empty()) {
    be.Convert(x, y);
  } else if (norm.bias.empty()) {
    be.RmsNorm(x, norm.weight, static_cast<float>(eps), y);
  } else {
    be.LayerNorm(x, norm.weight, norm.bias, static_cast<float>(eps), y);
  }
}

}  // namespace

void Layer::ApplyNorm(const Norm& norm, const TensorView& x, MutableTensorView y, Backend& be) const {
  NormRows(norm, config_.norm_eps, x, y, be);
}

void Layer::ApplyPostNorm(const Norm& norm, MutableTensorView x, Backend& be) const {
  NormRows(norm, config_.post_norm_eps > 0 ? config_.post_norm_eps : config_.norm_eps, x, x, be);
}

}  // namespace coppice
