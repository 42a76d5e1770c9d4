#include "model/transformer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/log_probs.h"

namespace coppice {

namespace {

// Rows that a layer's cache holds room for beyond the prompt from the start. Longer answers grow it: most are
// shorter, and an unlimited one would otherwise take the model's whole context at once (4 GiB for 131,072
// tokens of a 1b model).
constexpr int64_t kReservedAnswer = 1024;

// Rows of logits that exist at once in Score: 64 MiB for a vocabulary of 128k tokens.
constexpr int64_t kScoredRows = 128;

TraceBytes BytesHeld(const SequenceState& sequence) {
  return {.kv = sequence.kv_bytes(), .aux = sequence.aux.bytes(), .cold = sequence.cold_bytes()};
}

// A hidden state carries on through every layer above, and a few of its channels are far larger than the rest: with
// a scale per 32 values their neighbours would be lost.
DType ParkedType(DType cache) { return cache == DType::kQ8_0 ? DType::kBF16 : cache; }

}  // namespace

Transformer::Transformer(ModelConfig config, std::shared_ptr<const Weights> weights)
    : config_(std::make_unique<const ModelConfig>(std::move(config))), weights_(std::move(weights)) {
  if (config_->position == PositionKind::kAlibi) alibi_slopes_ = AlibiSlopes(config_->shape.heads);
  for (int l = 0; l < config_->shape.layers; ++l) {
    layers_.emplace_back(l, *config_, weights_->layers[static_cast<size_t>(l)], alibi_slopes_);
  }
}

void Transformer::CheckCacheType(const Backend& be) const {
  const DTypeInfo& type = Info(be.cache_dtype());
  const ModelShape& s = config_->shape;
  if (s.head_dim % type.block_elements == 0) return;
  throw Error(
      "[model] keys and values cannot be kept in {}: its blocks have {} values, the heads of this {} model "
      "{}",
      type.name, type.block_elements, s.architecture, s.head_dim);
}

SequenceState Transformer::NewSequence(int64_t prompt_tokens, int64_t capacity, const Backend& be) const {
  const ModelShape& s = config_->shape;
  CheckCacheType(be);  // again: a second model has heads of its own
  SequenceState sequence;
  const auto layers = static_cast<size_t>(s.layers);
  for (int l = 0; l < s.layers; ++l) sequence.cache.emplace_back(be.cache_dtype(), s.kv_heads, s.head_dim);
  sequence.aux = AuxCache(ParkedType(be.cache_dtype()), s.hidden);
  sequence.unit_keys.resize(layers);
  sequence.pages.resize(layers);
  sequence.sinks.resize(layers);
  sequence.step.resize(layers);
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
  COPPICE_CHECK(!all_logits || sequence.prefix.rows == 0);
  Stream x = RunLayers(tokens, policy, sequence, ws, be, !all_logits);
  COPPICE_CHECK(!all_logits || x.rows() == static_cast<int64_t>(tokens.size()));
  FinalNorm(x.hidden(), be);
  Head(x.hidden(), ws, be, logits);
  ws.Tick(config_->shape.layers);
}

Stream Transformer::RunLayers(std::span<const int32_t> tokens, TokenPolicy& policy, SequenceState& sequence,
                              Workspace& ws, Backend& be, bool last_row_only) const {
  COPPICE_CHECK(!tokens.empty() && sequence.cache.front().rows() == 0);
  const int64_t count = static_cast<int64_t>(tokens.size());
  COPPICE_CHECK(count == sequence.prompt_tokens && count <= sequence.capacity);
  const int layers = config_->shape.layers;
  std::vector<int32_t> positions;
  std::vector<int32_t> ids = Enter(tokens, policy, sequence, be, positions);
  TakeOver(sequence, ids, positions);
  if (sequence.trace != nullptr) {
    sequence.trace->BeginPrefill(layers, count,
                                 policy.CompactPositions() ? sequence.input : std::vector<int32_t>{});
  }
  Stream x(Phase::kPrefill, layers, sequence, EmbedTokens(ids, be), std::move(positions));
  const LayerContext run{policy, sequence.rope.view(), last_row_only, ws, be};
  for (int l = 0; l < layers; ++l) {
    LayerCache& cache = sequence.cache[static_cast<size_t>(l)];
    cache.Reserve(x.rows() + std::min(sequence.capacity - count, kReservedAnswer));
    layers_[static_cast<size_t>(l)].Forward(x, run);
  }
  sequence.ledger.NoteHeld(sequence.kv_bytes(), sequence.aux.bytes());
  if (sequence.trace != nullptr) {
    const int64_t row = 2 * BytesOf(be.cache_dtype(), sequence.cache.front().width());
    sequence.trace->EndPrefill(BytesHeld(sequence), row * layers * count);
  }
  return x;
}

void Transformer::PrefillScored(std::span<const int32_t> tokens, SequenceState& sequence, Workspace& ws,
                                Backend& be, Tensor& logits, const LogitsVisitor& visit) const {
  TokenPolicy dense;
  Stream x = RunLayers(tokens, dense, sequence, ws, be, false);
  FinalNorm(x.hidden(), be);
  const TensorView normed = x.hidden();
  if (x.rows() > 1) VisitLogits(normed.Rows(0, x.rows() - 1), ws, be, visit);
  Head(normed.Rows(x.rows() - 1, 1), ws, be, logits);
}

TextScore Transformer::Score(std::span<const int32_t> tokens, Workspace& ws, Backend& be) const {
  const auto count = static_cast<int64_t>(tokens.size());
  TextScore score;
  score.log_probabilities.assign(tokens.size(), 0);
  if (count < 2) return score;
  TokenPolicy dense;
  SequenceState sequence = NewSequence(count, count, be);
  Stream x = RunLayers(tokens, dense, sequence, ws, be, false);
  FinalNorm(x.hidden(), be);
  VisitLogits(TensorView(x.hidden()).Rows(0, count - 1), ws, be,
              [&](int64_t first, const TensorView& logits) {
                for (int64_t row = 0; row < logits.rows; ++row) {
                  const auto next = static_cast<size_t>(first + row + 1);
                  score.log_probabilities[next] = LogSoftmax(logits.Row<float>(row))(tokens[next]);
                }
              });
  score.flops = sequence.ledger.prefill_flops() + static_cast<double>(count - 2) * HeadFlops(config_->shape);
  return score;
}

void Transformer::Decode(int32_t token, TokenPolicy& policy, SequenceState& sequence, Workspace& ws,
                         Backend& be, Tensor& logits) const {
  const int layers = config_->shape.layers;
  // N, N + 1, ... however many were pruned.
  const auto position = static_cast<int32_t>(sequence.depth.size());
  COPPICE_CHECK(position < sequence.capacity);
  sequence.rope.Reach(position + 1);
  sequence.depth.push_back(layers);

  if (sequence.trace != nullptr) sequence.trace->BeginStep(position);
  Stream x(Phase::kDecode, layers, sequence, EmbedTokens({&token, 1}, be), {position});
  const LayerContext run{policy, sequence.rope.view(), true, ws, be};
  for (const Layer& layer : layers_) layer.Forward(x, run);
  sequence.ledger.CountDecodeStep(sequence.step);
  sequence.ledger.NoteHeld(sequence.kv_bytes(), sequence.aux.bytes());
  if (sequence.trace != nullptr) sequence.trace->EndStep(BytesHeld(sequence));
  FinalNorm(x.hidden(), be);
  Head(x.hidden(), ws, be, logits);
}

// The ids that go in, and their positions.
std::vector<int32_t> Transformer::Enter(std::span<const int32_t> tokens, TokenPolicy& policy,
                                        SequenceState& sequence, Backend& be,
                                        std::vector<int32_t>& positions) const {
  const auto count = static_cast<int64_t>(tokens.size());
  const TokenSet in = policy.Input(count, be);
  positions = in.ToRows();
  COPPICE_CHECK(in.universe() == count && in.Contains(count - 1));
  std::vector<int32_t> ids;
  for (const int32_t i : positions) ids.push_back(tokens[static_cast<size_t>(i)]);
  sequence.input = positions;
  sequence.entered = in.size();
  if (policy.CompactPositions()) {
    std::iota(positions.begin(), positions.end(), 0);
    sequence.prompt_tokens = in.size();
  }
  sequence.depth.assign(static_cast<size_t>(sequence.prompt_tokens), 0);
  for (const int32_t p : positions) sequence.depth[static_cast<size_t>(p)] = config_->shape.layers;
  return ids;
}

// What the sequence takes over needs no embedding: its keys are in the caches, and the stream begins behind it.
void Transformer::TakeOver(SequenceState& sequence, std::vector<int32_t>& ids,
                           std::vector<int32_t>& positions) const {
  const int64_t taken = sequence.prefix.rows;
  if (taken == 0) return;
  COPPICE_CHECK(taken < static_cast<int64_t>(ids.size()) && sequence.entered == sequence.prompt_tokens);
  const int64_t answer = std::min(sequence.capacity - sequence.prompt_tokens, kReservedAnswer);
  RestoreKeys(sequence.prefix, sequence.prompt_tokens + answer, sequence.cache);
  ids.erase(ids.begin(), ids.begin() + taken);
  positions.erase(positions.begin(), positions.begin() + taken);
  sequence.ledger.cached_tokens = taken;
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

void Transformer::FinalNorm(MutableTensorView hidden, Backend& be) const {
  const Norm& norm = weights_->final_norm;
  const float eps = static_cast<float>(config_->norm_eps);
  if (norm.bias.empty()) {
    be.RmsNorm(hidden, norm.weight, eps, hidden);
  } else {
    be.LayerNorm(hidden, norm.weight, norm.bias, eps, hidden);
  }
}

// The decode kernel even for many rows: logits are then the same numbers whether one position is asked for or
// all.
void Transformer::Head(const TensorView& normed, Workspace& ws, Backend& be, Tensor& logits) const {
  logits.Resize(DType::kF32, normed.rows, config_->shape.vocab);
  ws.head.Prepare(weights_->head, {}, be);
  ws.head(normed, ProductKind::kDecode, ProductEnd::kStore, logits.mutable_view(), be);
}

// The prefill kernel: many rows, of which no more than a tile's logits exist at once.
void Transformer::VisitLogits(const TensorView& normed, Workspace& ws, Backend& be,
                              const LogitsVisitor& visit) const {
  const std::vector<Tile> tiles = TilesOf(normed.rows, 0, kScoredRows);
  Projection head;  // not the workspace's: that one is for single rows and stays unpacked
  head.Prepare(weights_->head, tiles, be);
  Tensor logits;
  for (const Tile& tile : tiles) {
    logits.Resize(DType::kF32, tile.count, config_->shape.vocab);
    head(normed.Rows(tile.begin, tile.count), tile.kind, ProductEnd::kStore, logits.mutable_view(), be);
    visit(tile.begin, logits.view());
    ws.Tick(config_->shape.layers);
  }
}

}  // namespace coppice
