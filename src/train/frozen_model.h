// A model as the trainer sees it: frozen weights in fp32, a forward pass in libtorch, and the gradients that say which
// tokens an answer hangs on. Written from the papers' equations and not from the engine's code, with which it shares
// the reading of files and RoPE's frequencies: each is a check of the other.
//
// Memory: the weights in fp32; per sequence of n tokens the hidden states of all layers (4 L n d bytes), and of one
// layer at a time, because the backward pass computes each layer again, about five matrices of H x n x n floats: 2 GiB
// for 2,048 tokens and 25 heads. A few thousand tokens are what this is for.
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
  int64_t prompt = 0;  // of these; the others are the response, at least one
};

// What the dense model says of one text, by stage.
struct Marked {
  std::vector<std::vector<float>> hidden;    // [stages] [prompt, d]: what enters the stage's layer
  std::vector<std::vector<float>> saliency;  // [stages] [prompt], in [0, 1]
  double log_likelihood = 0;                 // sum over the response's tokens
};

class FrozenModel {
 public:
  // Reads every matrix once, into fp32 where it is stored otherwise.
  FrozenModel(const ModelConfig& config, std::shared_ptr<const Weights> weights);
  ~FrozenModel();
  FrozenModel(const FrozenModel&) = delete;
  FrozenModel& operator=(const FrozenModel&) = delete;

  const ModelConfig& config() const;

  // [tokens, vocab], every position.
  std::vector<float> Logits(std::span<const int32_t> tokens) const;

  // Saliency before each of `layers` (ascending) of each token x_i of the prompt, by one forward and one backward pass:
  //   T = sum log p(response)      s_i = |<dT/dx_i, x_i>| / max_j |<dT/dx_j, x_j>|
  // Throws Error where the numbers overflow.
  Marked Mark(const TrainingText& text, std::span<const int> layers) const;

  struct Torch;  // frozen_model_torch.h
  const Torch& torch() const { return *torch_; }

 private:
  std::unique_ptr<const Torch> torch_;
};

// For all of libtorch's work from here on.
void SetTorchThreads(int threads);

}  // namespace coppice
