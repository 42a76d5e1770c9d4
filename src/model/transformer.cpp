#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/record.h"

namespace coppice {

Transformer::Transformer(ModelConfig config, std::shared_ptr<const Weights> weights)
    : config_(std::make_unique<const ModelConfig>(std::move(config))), weights_(std::move(weights)) {
  const ModelShape& s = config_->shape;
  const auto all = s.layer_count() + static_cast<int>(s.tail.size());
  for (int l = 0; l < all; ++l) {
    // The layer refers to the slopes, which stay where they are on the heap.
    alibi_slopes_.push_back(s.alibi ? AlibiSlopes(s.AnyLayer(l).heads) : std::vector<float>());
    (l < s.layer_count() ? layers_ : tail_)
        .emplace_back(l, *config_, weights_->layers[static_cast<size_t>(l)], alibi_slopes_.back());
  }
}

Transformer Transformer::FirstLayers(int layers) const {
  COPPICE_CHECK(layers > 0 && layers <= config_->shape.layer_count());
  ModelConfig first = *config_;
  first.shape.layers.resize(static_cast<size_t>(layers));
  first.shape.tail.clear();
  return {std::move(first), weights_};
}

void Transformer::Prefill(std::span<const int32_t> tokens, const Pass& pass, Tensor& logits,
                          bool all_logits) const {
  COPPICE_CHECK(!all_logits || (pass.sequence.prefix.rows == 0 && pass.split == nullptr));
  Stream x = RunLayers(tokens, pass, !all_logits);
  if (!pass.leads()) return;
  COPPICE_CHECK(!all_logits || x.rows() == std::ssize(tokens));
  ApplyNorm(weights_->head_norm, x.hidden(), pass.backend);
  Head(x.hidden(), pass, logits);
  pass.control.Tick(config_->shape.layer_count());
}

void Transformer::PrefillStates(std::span<const int32_t> tokens, const Pass& pass, bool last_row_only,
                                const StatesVisitor& visit) const {
  COPPICE_CHECK(pass.split == nullptr);
  Stream x = RunLayers(tokens, pass, last_row_only);
  ApplyNorm(weights_->final_norm, x.hidden(), pass.backend);
  const HostRows states(x.hidden());
  visit(states.view());
  pass.control.Tick(config_->shape.layer_count());
}

void Transformer::PrefillLayers(std::span<const int32_t> tokens, const Pass& pass) const {
  RunLayers(tokens, pass, true);
  pass.control.Tick(config_->shape.layer_count());
}

Stream Transformer::RunLayers(std::span<const int32_t> tokens, const Pass& pass, bool last_row_only) const {
  SequenceState& sequence = pass.sequence;
  const int64_t count = std::ssize(tokens);
  COPPICE_CHECK(count > 0 && count == sequence.prompt_tokens && count <= sequence.capacity);
  for (const LayerState& layer : sequence.layers) COPPICE_CHECK(layer.cache.rows() == 0);

  const bool compact = pass.policy.Facts().compact_positions;
  const TokenSet entering = pass.policy.Input(count, pass.backend);
  if (pass.split != nullptr) pass.split->Agree(entering, "input", 0);
  std::vector<int32_t> positions = sequence.Enter(entering, compact);
  const int64_t reused = sequence.prefix.rows;  // these rows already have keys: the stream begins after them
  if (reused > 0) sequence.RestorePrefix();
  sequence.tokens.assign(sequence.depth.size(), 0);
  for (size_t i = 0; i < positions.size(); ++i)
    sequence.tokens[static_cast<size_t>(positions[i])] = tokens[static_cast<size_t>(sequence.input[i])];
  positions.erase(positions.begin(), positions.begin() + reused);
  std::vector<int32_t> ids;
  for (int64_t i = reused; i < sequence.entered; ++i)
    ids.push_back(tokens[static_cast<size_t>(sequence.input[static_cast<size_t>(i)])]);

  pass.workspace.kept.steps.SetRoom(0);  // frees the weights kept by an earlier run
  RecordPrefillBegin(sequence, compact);
  Stream x = Embedded(ids, std::move(positions), pass, last_row_only);
  for (int l = 0; l < config_->shape.layer_count(); ++l) {
    sequence.Reserve(l, x.rows());
    layers_[static_cast<size_t>(l)].Forward(x, pass);
    // Process 0 alone decodes: the others need no keys of layers that they have left.
    if (!pass.leads()) sequence.DropKeys(l);
  }
  if (pass.leads()) {
    for (const Layer& layer : tail_) layer.Tail(x, pass);
  }
  RecordPrefillEnd(sequence);
  return x;
}

// The stream before the first layer. Of several processes, each embeds its own rows; memory that it never
// writes is never committed.
Stream Transformer::Embedded(std::span<const int32_t> ids, std::vector<int32_t> positions, const Pass& pass,
                             bool last_row_only) const {
  Tensor hidden(DType::kF32, std::ssize(ids), config_->shape.hidden, pass.backend.memory());
  Stream x(Phase::kPrefill, pass.sequence, std::move(hidden), std::move(positions), last_row_only);
  if (pass.split != nullptr) {
    COPPICE_CHECK(pass.sequence.prefix.rows == 0 && pass.sequence.capture == nullptr);
    const Comm& comm = pass.split->comm();
    x.Split(Deal(x.rows(), comm.size(), pass.workspace.tile_rows), comm.rank());
  }
  for (const Tile& own : x.Tiles(x.rows())) {  // one process: all rows at once
    Embed(ids.subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.count)), pass.backend,
          x.hidden().Rows(own.begin, own.count));
  }
  return x;
}

namespace {

// The memory for packed weights that decode steps keep: what pruning saves, so that the run holds no more
// than a dense run, but at least enough for the weights of a small model.
int64_t RoomForWeights(const SequenceState& sequence) {
  constexpr int64_t kInAnyCase = int64_t{128} << 20;
  const int64_t dense = sequence.dense_kv_bytes(std::ssize(sequence.depth));
  return std::max(kInAnyCase, dense - sequence.kv_bytes() - sequence.aux.bytes());
}

}  // namespace

namespace {

// Ends a backend's step also where it is cancelled, so that later operations are no part of it.
class StepScope {
 public:
  explicit StepScope(Backend& be) : be_(be) { be_.BeginStep(); }
  ~StepScope() {
    if (ended_) return;
    try {
      be_.EndStep();
    } catch (...) {  // the error that is under way says more
    }
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
  void End() {
    ended_ = true;
    be_.EndStep();
  }

 private:
  Backend& be_;
  bool ended_ = false;
};

}  // namespace

void Transformer::Decode(int32_t token, const Pass& pass, Tensor& logits) const {
  SequenceState& sequence = pass.sequence;
  // N, N + 1, ...: does not depend on how many tokens were pruned.
  const auto position = static_cast<int32_t>(sequence.depth.size());
  COPPICE_CHECK(position < sequence.capacity);
  sequence.ReachRope(position + 1);
  sequence.depth.push_back(config_->shape.layer_count());
  sequence.tokens.push_back(token);

  pass.workspace.kept.steps.SetRoom(RoomForWeights(sequence));
  RecordStepBegin(sequence, position);
  Stream x(Phase::kDecode, sequence, EmbedTokens({&token, 1}, pass.backend), {position}, true);
  StepScope step(pass.backend);
  for (const Layer& layer : layers_) layer.Forward(x, pass);
  for (const Layer& layer : tail_) layer.Tail(x, pass);
  step.End();
  RecordStepEnd(sequence);
  ApplyNorm(weights_->head_norm, x.hidden(), pass.backend);
  Head(x.hidden(), pass, logits);
}

void Transformer::DecodeTogether(std::span<DecodeStep* const> steps) const {
  // As many at a time as the workspace has rows.
  const int64_t most = steps.front()->pass.workspace.tile_rows;
  int64_t rows = 0;
  size_t begin = 0;
  for (size_t end = 0; end < steps.size(); ++end) {
    const auto more = std::ssize(steps[end]->tokens);
    if (end > begin && rows + more > most) {
      DecodeSome(steps.subspan(begin, end - begin));
      begin = end;
      rows = 0;
    }
    rows += more;
  }
  DecodeSome(steps.subspan(begin));
}

void Transformer::DecodeSome(std::span<DecodeStep* const> steps) const {
  const Pass& first = steps.front()->pass;
  std::vector<int32_t> tokens;
  for (const DecodeStep* step : steps) tokens.insert(tokens.end(), step->tokens.begin(), step->tokens.end());
  DecodeBatch batch(steps, EmbedTokens(tokens, first.backend), config_->shape.layer_count());
  StepScope step(first.backend);
  for (const Layer& layer : layers_) layer.Step(batch);
  for (const Layer& layer : tail_) layer.TailStep(batch);
  step.End();
  for (const DecodeBatch::Part& part : batch.parts()) RecordStepEnd(part.sequence, part.rows());
  ApplyNorm(weights_->head_norm, batch.hidden(), first.backend);
  Tensor logits;
  Head(batch.hidden(), first, logits);
  for (size_t i = 0; i < steps.size(); ++i) {
    const DecodeBatch::Part& part = batch.parts()[i];
    steps[i]->logits.Resize(DType::kF32, part.rows(), logits.cols());
    CopyRows(logits.view().Rows(part.first, part.rows()), steps[i]->logits.mutable_view());
  }
}

Tensor Transformer::EmbedTokens(std::span<const int32_t> tokens, Backend& be) const {
  Tensor hidden(DType::kF32, std::ssize(tokens), config_->shape.hidden, be.memory());
  Embed(tokens, be, hidden.mutable_view());
  return hidden;
}

void Transformer::Embed(std::span<const int32_t> tokens, Backend& be, MutableTensorView x) const {
  be.Embed(weights_->embedding, tokens, static_cast<float>(config_->embedding_scale), x);
  if (!weights_->embedding_norm.weight.empty()) ApplyNorm(weights_->embedding_norm, x, be);
}

void Transformer::ApplyNorm(const Norm& norm, MutableTensorView hidden, Backend& be) const {
  const float eps = static_cast<float>(config_->norm_eps);
  if (norm.bias.empty()) {
    be.RmsNorm(hidden, norm.weight, eps, hidden);
  } else {
    be.LayerNorm(hidden, norm.weight, norm.bias, eps, hidden);
  }
}

// Uses the decode kernel for any number of rows, so that a position's logits are the same numbers whether the
// caller asks for one position or for all.
void Transformer::Head(const TensorView& normed, const Pass& pass, Tensor& logits) const {
  logits.Resize(DType::kF32, normed.rows, config_->shape.vocab);
  Projection& head = pass.workspace.head;
  head.Prepare(weights_->head, {}, pass.workspace.kept, pass.backend);
  head(normed, ProductKind::kDecode, ProductEnd::kStore, logits.mutable_view(), pass.backend);
  Cap(logits);
}

void Transformer::Cap(Tensor& logits) const {
  const auto cap = static_cast<float>(config_->logit_cap);
  if (cap == 0) return;
  const MutableTensorView rows = logits.mutable_view();  // in host memory, whatever the backend
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (float& logit : rows.Row<float>(row)) logit = cap * std::tanh(logit / cap);
  }
}

}  // namespace coppice
