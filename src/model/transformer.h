// A decoder-only transformer that prefills layer by layer over the whole prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/layer.h"
#include "model/sequence.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "policies/policy.h"

namespace coppice {

struct TextScore {
  std::vector<double> log_probabilities;  // [tokens] natural, of each token after those before it; 0 first
  double flops = 0;
};

// Logits [rows, vocab] of the positions from `first` on, in order; they are gone after the call.
using LogitsVisitor = std::function<void(int64_t first, const TensorView& logits)>;

class Transformer {
 public:
  Transformer(ModelConfig config, std::shared_ptr<const Weights> weights);

  const ModelConfig& config() const { return *config_; }
  const Weights& weights() const { return *weights_; }

  // Throws Error where the backend keeps keys in blocks that the model's heads do not fill.
  void CheckCacheType(const Backend& be) const;
  // An empty sequence for a prompt of `prompt_tokens` and at most `capacity` positions in all.
  SequenceState NewSequence(int64_t prompt_tokens, int64_t capacity, const Backend& be) const;
  Workspace NewWorkspace(int64_t tile_rows) const { return {config_->shape, tile_rows}; }

  // Runs the whole prompt, or what the policy lets in. logits becomes [1, vocab], of the last position; with
  // `all_logits` [tokens, vocab] (the last layer then computes every row, and no policy may drop rows). Where the
  // sequence takes over a prefix, its rows are not computed again; not with `all_logits`.
  void Prefill(std::span<const int32_t> tokens, TokenPolicy& policy, SequenceState& sequence, Workspace& ws,
               Backend& be, Tensor& logits, bool all_logits = false) const;
  // As Prefill, densely, and shows the logits of every position but the last, a tile at a time. logits becomes
  // [1, vocab], bit for bit what a dense Prefill gives.
  void PrefillScored(std::span<const int32_t> tokens, SequenceState& sequence, Workspace& ws, Backend& be,
                     Tensor& logits, const LogitsVisitor& visit) const;
  // Runs one more token at the next position. logits becomes [1, vocab].
  void Decode(int32_t token, TokenPolicy& policy, SequenceState& sequence, Workspace& ws, Backend& be,
              Tensor& logits) const;
  // What a text's tokens are worth to this model, densely. Never holds more than a tile of logits.
  TextScore Score(std::span<const int32_t> tokens, Workspace& ws, Backend& be) const;

 private:
  Stream RunLayers(std::span<const int32_t> tokens, TokenPolicy& policy, SequenceState& sequence,
                   Workspace& ws, Backend& be, bool last_row_only) const;
  std::vector<int32_t> Enter(std::span<const int32_t> tokens, TokenPolicy& policy, SequenceState& sequence,
                             Backend& be, std::vector<int32_t>& positions) const;
  void TakeOver(SequenceState& sequence, std::vector<int32_t>& ids, std::vector<int32_t>& positions) const;
  Tensor EmbedTokens(std::span<const int32_t> tokens, Backend& be) const;
  void FinalNorm(MutableTensorView hidden, Backend& be) const;
  void Head(const TensorView& normed, Workspace& ws, Backend& be, Tensor& logits) const;
  void VisitLogits(const TensorView& normed, Workspace& ws, Backend& be, const LogitsVisitor& visit) const;

  // On the heap, so that layers can refer to them while the transformer moves.
  std::unique_ptr<const ModelConfig> config_;
  std::shared_ptr<const Weights> weights_;
  std::vector<float> alibi_slopes_;  // [heads], or empty
  std::vector<Layer> layers_;
};

}  // namespace coppice
