// The predictors during training: their weights, their losses, and AdamW.
//
//   pi_i  = W2 gelu(W1 LayerNorm(x_i) + b1) + b2,   s_i = pi_i,0 - pi_i,1 (policies/methods/sdtp_predictor.h)
//   L_mse = mean_i (sigmoid(s_i) - saliency_i)^2
//   L_r   = mean over pairs of log(1 + exp(-(s_i - s_j) sign(saliency_i - saliency_j)))   (RankNet, no ties)
//
// Both are averaged over the stages. The paper sums over all pairs, which for n tokens outweighs the other
// losses by a factor of n^2 / 2. This mean over at most 4,096 pairs of each text does not. Source: arXiv
// 2504.04514, equations 4 to 8.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"

namespace coppice {

struct SdtpLosses {
  double mse = 0;
  double rank = 0;
  double answer = 0;   // cross entropy of the response under pruning, per token; end to end only
  double distill = 0;  // KL divergence from the dense model, per token
  double ratio = 0;    // mean over stages of (kept - r^s)^2

  void Add(const SdtpLosses& other, double weight);
};

// The weight of each loss; 0 disables it.
struct SdtpLossWeights {
  double mse = 1;
  double rank = 1;
  double distill = 0;
  double ratio = 0;
};

// The dense model's results for some tokens of one text at one stage.
struct StageTargets {
  std::vector<float> hidden;    // [rows, d]
  std::vector<float> saliency;  // [rows]
};

struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class SdtpNet {
 public:
  // d: the model's hidden size; h: the width of the hidden layer. Initial weights have the distribution of
  // torch's Linear and come from `seed`.
  SdtpNet(int64_t d, int64_t h, int stages, uint64_t seed);
  ~SdtpNet();
  SdtpNet(const SdtpNet&) = delete;
  SdtpNet& operator=(const SdtpNet&) = delete;

  int stages() const;

  // s_i for rows x [rows, d].
  std::vector<float> Scores(int stage, std::span<const float> x) const;

  // Adds `weight` times the losses' gradients and returns the losses. `random` samples the pairs if there are
  // too many.
  SdtpLosses Learn(std::span<const StageTargets> stages, const SdtpLossWeights& weights, double weight,
                   Random random);

  // Takes a step of AdamW with the gradients accumulated since the last step, clipped to norm 1, and clears
  // them. Throws Error if they are not finite.
  void Step(double learning_rate);
  int64_t steps() const;

  // The tensors of the side file: "sdtp.0.ln.w", ...
  std::vector<NamedArray> Weights() const;
  // The weights and AdamW's moments: with steps(), all that a run needs to resume exactly.
  std::vector<NamedArray> State() const;
  // Restores the result of State() after `steps` steps. Returns false if a tensor is missing or has another
  // shape.
  bool Restore(std::span<const NamedArray> state, int64_t steps);

  struct Torch;  // sdtp_net_torch.h
  Torch& torch() { return *torch_; }
  const Torch& torch() const { return *torch_; }

 private:
  std::unique_ptr<Torch> torch_;
};

}  // namespace coppice
