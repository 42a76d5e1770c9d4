#include "model/transformer.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace coppice {

namespace {

// Rows that a layer's cache holds room for beyond the prompt from the start. Longer answers grow it: most are
// shorter, and an unlimited one would otherwise take the model's whole context at once (4 GiB for 131,072
// tokens of a 1b model).
constexpr int64_t kReservedAnswer = 1024;

}  // namespace

Transformer::Transformer(ModelConfig config, std::shared_ptr<const Weights> weights)
    : config_(std::make_unique<const ModelConfig>(std::move(config))), weights_(std::move(weights)) {
  if (config_->position == PositionKind::kAlibi) alibi_slopes_ = AlibiSlopes(config_->shape.heads);
  for (int l = 0; l < config_->shape.layers; ++l) {
    layers_.emplace_back(l, *config_, weights_->layers[static_cast<size_t>(l)], alibi_slopes_);
  }
}

SequenceState Transformer::NewSequence(int64_t prompt_tokens, int64_t capacity, const Backend& be) const {
  const ModelShape& s = config_->shape;
  SequenceState sequence;
  for (int l = 0; l < s.layers; ++l) {
    sequence.cache.emplace_back(be.cache_dtype(), static_cast<int64_t>(s.kv_heads) * s.head_dim);
  }
  sequence.ledger = Ledger(s, prompt_tokens);
  sequence.prompt_tokens = prompt_tokens;
  sequence.capacity = capacity;
  if (config_->position == PositionKind::kRope) {
    sequence.rope =
        RopeTables(MakeRopeFrequencies(config_->rope, weights_->rope_factors), config_->rope.interleaved);
    sequence.rope.Reach(prompt_tokens);
  }
  return sequence;
}

void Transformer::Prefill(std::span<const int32_t> tokens, TokenPolicy& policy, SequenceState& sequence,
                          Workspace& ws, Backend& be, Tensor& logits, bool all_logits) const {
  COPPICE_CHECK(!tokens.empty() && sequence.cache.front().rows() == 0);
  const int64_t count = static_cast<int64_t>(tokens.size());
  COPPICE_CHECK(count == sequence.prompt_tokens && count <= sequence.capacity);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const int layers = config_->shape.layers;
  sequence.depth.assign(tokens.size(), layers);

  Stream x(Phase::kPrefill, layers, count, EmbedTokens(tokens, be), std::move(positions), sequence.depth);
  const LayerContext run{policy, sequence.rope.view(), !all_logits, ws, be};
  for (int l = 0; l < layers; ++l) {
    LayerCache& cache = sequence.cache[static_cast<size_t>(l)];
    cache.Reserve(x.rows() + std::min(sequence.capacity - count, kReservedAnswer));
    layers_[static_cast<size_t>(l)].Forward(x, cache, sequence.ledger.layer(l), run);
  }
  COPPICE_CHECK(!all_logits || x.rows() == count);
  Head(x, ws, be, logits);
  ws.Tick(layers);
}

void Transformer::Decode(int32_t token, TokenPolicy& policy, SequenceState& sequence, Workspace& ws,
                         Backend& be, Tensor& logits) const {
  const int layers = config_->shape.layers;
  // N, N + 1, ... however many were pruned.
  const auto position = static_cast<int32_t>(sequence.depth.size());
  COPPICE_CHECK(position < sequence.capacity);
  sequence.rope.Reach(position + 1);
  sequence.depth.push_back(layers);

  Stream x(Phase::kDecode, layers, sequence.prompt_tokens, EmbedTokens({&token, 1}, be), {position},
           sequence.depth);
  const LayerContext run{policy, sequence.rope.view(), true, ws, be};
  std::vector<int64_t> keys;
  LayerCounts step;
  for (int l = 0; l < layers; ++l) {
    LayerCache& cache = sequence.cache[static_cast<size_t>(l)];
    layers_[static_cast<size_t>(l)].Forward(x, cache, step, run);
    keys.push_back(cache.rows());
  }
  sequence.ledger.CountDecodeStep(keys);
  Head(x, ws, be, logits);
}

Tensor Transformer::EmbedTokens(std::span<const int32_t> tokens, Backend& be) const {
  Tensor hidden(DType::kF32, static_cast<int64_t>(tokens.size()), config_->shape.hidden);
  const MutableTensorView x = hidden.mutable_view();
  be.Embed(weights_->embedding, tokens, x);
  const Norm& norm = weights_->embedding_norm;
  if (!norm.weight.empty()) {
    be.LayerNorm(x, norm.weight, norm.bias, static_cast<float>(config_->norm_eps), x);
  }
  return hidden;
}

// The decode kernel even for many rows: logits are then the same numbers whether one position is asked for or
// all.
void Transformer::Head(Stream& x, Workspace& ws, Backend& be, Tensor& logits) const {
  const Norm& norm = weights_->final_norm;
  const float eps = static_cast<float>(config_->norm_eps);
  const MutableTensorView hidden = x.hidden();
  if (norm.bias.empty()) {
    be.RmsNorm(hidden, norm.weight, eps, hidden);
  } else {
    be.LayerNorm(hidden, norm.weight, norm.bias, eps, hidden);
  }
  logits.Resize(DType::kF32, x.rows(), config_->shape.vocab);
  ws.head.Prepare(weights_->head, ProductKind::kDecode, be);
  ws.head(hidden, logits.mutable_view(), be);
}

}  // namespace coppice
