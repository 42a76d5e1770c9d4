// Training through the pruned model: the predictors select tokens, attention is masked as if the dropped
// tokens were absent, and the gradient of the answer's cross entropy reaches the predictors through the
// masks.
//
//   L = L_cls + L_mse + L_r  (+ distill KL(dense || pruned) + ratio mean_s (mean(M_s) - r^s)^2)
//
// The masks are hard with straight-through gradients, nested (M_s <= M_{s-1}), and 1 for the response and the
// protected tokens. Top-k masks keep the r^s N best tokens, like the engine; their gradient is that of
// sigmoid(s_i - the last kept score). Gumbel masks sample argmax(log softmax(pi) + Gumbel noise); only the
// ratio loss ties their size to r^s. Sources: arXiv 2504.04514 (losses, stages); DynamicViT, arXiv 2106.02034
// (masks, distillation, weights of both).
#pragma once

#include <span>
#include <vector>

#include "base/random.h"
#include "policies/methods/sdtp.h"
#include "train/frozen_model.h"
#include "train/sdtp_net.h"

namespace coppice {

enum class MaskKind { kTopK, kGumbel };

struct PrunedPass {
  const FrozenModel& model;
  const SdtpConfig& config;
  MaskKind mask = MaskKind::kTopK;
};

// Adds `weight` times the gradients of one text's losses and returns the losses. `saliency` [stages] [prompt]
// comes from the dense pass.
SdtpLosses LearnEndToEnd(const PrunedPass& pass, const TrainingText& text,
                         std::span<const std::vector<float>> saliency, const SdtpLossWeights& weights,
                         double weight, Random random, SdtpNet& net);

// The result of pruning with top-k masks, as training simulates it: the logits [response, vocab] that predict
// the response's tokens, and the tokens kept after each stage. For tests.
struct PrunedLogits {
  std::vector<float> logits;
  std::vector<std::vector<int32_t>> kept;  // [stages]; positions in the prompt
};
PrunedLogits SimulatePruning(const PrunedPass& pass, const TrainingText& text, const SdtpNet& net);

}  // namespace coppice
