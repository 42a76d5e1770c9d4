// A decoder-only transformer that prefills layer by layer over the whole prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/decode_batch.h"
#include "model/layer.h"
#include "model/pass.h"
#include "model/weights.h"

namespace coppice {

struct TextScore {
  std::vector<double>
      log_probabilities;  // [tokens] natural, of each token given those before it; 0 for the first
  double flops = 0;
};

// Logits [rows, vocab] of the positions from `first` on, in order. They are valid during the call only.
using LogitsVisitor = std::function<void(int64_t first, const TensorView& logits)>;
// Final hidden states [rows, hidden]. They are valid during the call only.
using StatesVisitor = std::function<void(const TensorView& states)>;

class Transformer {
 public:
  Transformer(ModelConfig config, std::shared_ptr<const Weights> weights);

  const ModelConfig& config() const { return *config_; }
  const Weights& weights() const { return *weights_; }

  // This model without the layers from `layers` on, with the same weights. For passes without a head.
  Transformer FirstLayers(int layers) const;

  // An empty sequence for a prompt of `prompt_tokens` and at most `capacity` positions in all. Throws Error
  // if the model's heads do not fill the blocks in which the backend keeps keys.
  SequenceState NewSequence(int64_t prompt_tokens, int64_t capacity, const Backend& be) const {
    return {*config_, weights_->rope_factors, be.cache_dtype(), prompt_tokens, capacity, be.memory()};
  }
  // For passes on a backend with this memory().
  Workspace NewWorkspace(int64_t tile_rows, DeviceMemory* memory = nullptr) const {
    return {config_->shape, tile_rows, memory};
  }

  // Runs the whole prompt, or the tokens that the policy lets in. logits becomes [1, vocab], of the last
  // position. With `all_logits` it becomes [tokens, vocab]: the last layer then computes every row, the
  // policy may drop none, and the sequence may reuse no prefix. The rows of a reused prefix are not computed
  // again. With Pass::split, logits are set in process 0 only, and the others keep no keys; neither a prefix
  // nor `all_logits` goes with it.
  void Prefill(std::span<const int32_t> tokens, const Pass& pass, Tensor& logits,
               bool all_logits = false) const;
  // As Prefill, but dense whatever the policy. Also calls `visit`, unless it is empty, with the logits of
  // every position but the last, by tiles. logits: a dense Prefill's but for the last layer's rounding.
  void PrefillScored(std::span<const int32_t> tokens, const Pass& pass, Tensor& logits,
                     const LogitsVisitor& visit) const;
  // As Prefill, but without the head: calls `visit` once with the states after the final norm, of every
  // token that entered, or with `last_row_only` of the last one.
  void PrefillStates(std::span<const int32_t> tokens, const Pass& pass, bool last_row_only,
                     const StatesVisitor& visit) const;
  // As Prefill, but without the final norm and the head: for policies that watch the layers.
  void PrefillLayers(std::span<const int32_t> tokens, const Pass& pass) const;
  // Runs one more token at the next position. logits becomes [1, vocab].
  void Decode(int32_t token, const Pass& pass, Tensor& logits) const;
  // Takes plain decode steps (IsPlainDecode) of several sequences together. Each gets the bits that Decode
  // gives it, token by token; the weights are read once for all. A step has at most as many tokens as the
  // first one's workspace has tile rows.
  void DecodeTogether(std::span<DecodeStep* const> steps) const;
  // Computes the log-probabilities of a text's tokens in a dense run. Holds at most one tile of logits at
  // once.
  TextScore Score(std::span<const int32_t> tokens, Workspace& ws, Backend& be,
                  const RunControl& control = {}) const;

 private:
  Stream RunLayers(std::span<const int32_t> tokens, const Pass& pass, bool last_row_only) const;
  void DecodeSome(std::span<DecodeStep* const> steps) const;
  Stream Embedded(std::span<const int32_t> ids, std::vector<int32_t> positions, const Pass& pass,
                  bool last_row_only) const;
  Tensor EmbedTokens(std::span<const int32_t> tokens, Backend& be) const;
  void Embed(std::span<const int32_t> tokens, Backend& be, MutableTensorView x) const;  // x [tokens, d]
  void ApplyNorm(const Norm& norm, MutableTensorView hidden, Backend& be) const;
  void Head(const TensorView& normed, const Pass& pass, Tensor& logits) const;
  void Cap(Tensor& logits) const;
  void VisitLogits(const TensorView& normed, const Pass& pass, const LogitsVisitor& visit) const;

  // On the heap, because layers refer to it and a Transformer can move.
  std::unique_ptr<const ModelConfig> config_;
  std::shared_ptr<const Weights> weights_;
  std::vector<std::vector<float>> alibi_slopes_;  // [layers][heads], or [layers][0]
  std::vector<Layer> layers_;
  std::vector<Layer> tail_;
};

}  // namespace coppice
