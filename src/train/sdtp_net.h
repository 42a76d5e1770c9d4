// The predictors while they are trained: their weights, their losses, AdamW.
//
//   pi_i  = W2 gelu(W1 LayerNorm(x_i) + b1) + b2,   s_i = pi_i,0 - pi_i,1          as policies/sdtp_predictor.h
//   L_mse = mean_i (sigmoid(s_i) - saliency_i)^2
//   L_r   = mean over pairs of log(1 + exp(-(s_i - s_j) sign(saliency_i - saliency_j)))     RankNet, without ties
//
// both as means over the stages. The paper sums over all pairs, which for n tokens outweighs the other losses n^2 / 2
// times; the mean over at most 4,096 pairs of each text does not.
// Source: arXiv 2504.04514, equations 4 to 8.
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

// Which losses count, and how much.
struct SdtpLossWeights {
  double mse = 1;
  double rank = 1;
  double distill = 0;
  double ratio = 0;
};

// What the dense model said of some tokens of one text, by stage.
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
  // d: the model's hidden size; h: the width inside. Weights as torch's Linear starts them, from `seed`.
  SdtpNet(int64_t d, int64_t h, int stages, uint64_t seed);
  ~SdtpNet();
  SdtpNet(const SdtpNet&) = delete;
  SdtpNet& operator=(const SdtpNet&) = delete;

  int stages() const;

  // s_i of rows x [rows, d].
  std::vector<float> Scores(int stage, std::span<const float> x) const;

  // Adds `weight` times the losses' gradients. `random` picks the pairs where there are too many.
  SdtpLosses Learn(std::span<const StageTargets> stages, const SdtpLossWeights& weights, double weight,
                   Random random);

  // Takes one step of AdamW with the gradients added since the last, their norm clipped to 1, and forgets them. Throws
  // Error where they are not finite.
  void Step(double learning_rate);
  int64_t steps() const;

  // The side file's tensors: "sdtp.0.ln.w", ...
  std::vector<NamedArray> Weights() const;
  // Those and all that a run needs to go on as if it had never stopped.
  std::vector<NamedArray> State() const;
  // Takes what State() gave, at that step; false where it does not fit.
  bool Restore(std::span<const NamedArray> state, int64_t steps);

  struct Torch;  // sdtp_net_torch.h
  Torch& torch() { return *torch_; }
  const Torch& torch() const { return *torch_; }

 private:
  std::unique_ptr<Torch> torch_;
};

}  // namespace coppice
