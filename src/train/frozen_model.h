// The trainer's view of a model: frozen weights in fp32, a forward pass in libtorch, and the gradients that
// show which tokens an answer depends on. It implements the papers' equations and shares only file reading
// and RoPE's frequencies with the engine, so each checks the other.
//
// Memory: the weights in fp32; per sequence of n tokens, the hidden states of all L layers (4 L n d bytes);
// and, because the backward pass recomputes one layer at a time, about five matrices of H x n x n floats for
// a single layer: 2 GiB for 2,048 tokens and 25 heads. This is meant for a few thousand tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace coppice {

// One training text: a prompt and the response that follows it.
struct TrainingText {
  std::vector<int32_t> tokens;
  int64_t prompt = 0;  // number of prompt tokens; the rest, at least one, is the response
};

// The dense model's results for one text, by stage.
struct Marked {
  std::vector<std::vector<float>> hidden;    // [stages] [prompt, d]: the input of the stage's layer
  std::vector<std::vector<float>> saliency;  // [stages] [prompt], in [0, 1]
  double log_likelihood = 0;                 // sum over the response's tokens
};

class FrozenModel {
 public:
  // Reads every matrix once; converts it to fp32 if it has another type.
  FrozenModel(const ModelConfig& config, std::shared_ptr<const Weights> weights);
  ~FrozenModel();
  FrozenModel(const FrozenModel&) = delete;
  FrozenModel& operator=(const FrozenModel&) = delete;

  const ModelConfig& config() const;

  // Logits [tokens, vocab] of every position.
  std::vector<float> Logits(std::span<const int32_t> tokens) const;

  // The saliency of each prompt token x_i before each of `layers` (ascending), from one forward and one
  // backward pass:
  //   T = sum log p(response)      s_i = |<dT/dx_i, x_i>| / max_j |<dT/dx_j, x_j>|
  // Throws Error if the numbers overflow.
  Marked Mark(const TrainingText& text, std::span<const int> layers) const;

  struct Torch;  // frozen_model_torch.h
  const Torch& torch() const { return *torch_; }

 private:
  std::unique_ptr<const Torch> torch_;
};

// Sets the number of threads of all later libtorch operations.
void SetTorchThreads(int threads);

}  // namespace coppice
