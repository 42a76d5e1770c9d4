// The frozen model's tensors and passes, for the sources that speak to libtorch.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "train/frozen_model.h"

namespace coppice {

struct TorchNorm {
  at::Tensor weight;  // [d], undefined where there is no such norm
  at::Tensor bias;    // [d], or undefined
};

struct TorchLinear {
  at::Tensor weight;  // [outputs, inputs], undefined where there is no such product
  at::Tensor bias;    // [outputs], or undefined
};

struct TorchLayer {
  TorchNorm attention_norm, ffn_norm;
  TorchLinear query, key, value, output, gate, up, down;
};

struct FrozenModel::Torch {
  ModelConfig config;
  std::shared_ptr<const Weights> weights;  // the embedding's rows are read from here; fp32 matrices lie in it
  std::vector<TorchLayer> layers;
  TorchNorm embedding_norm, final_norm;
  TorchLinear head;
  at::Tensor alibi_slopes;  // [heads, 1, 1], or undefined

  at::Tensor Embed(std::span<const int32_t> tokens) const;  // [n, d]
  at::Tensor Norm(const TorchNorm& norm, const at::Tensor& x) const;
  at::Tensor Logits(const at::Tensor& x) const;  // [rows, vocab] of hidden states that left the last layer
};

// One sequence's way through the layers. Must live until its backward pass is done.
class TorchPass {
 public:
  TorchPass(const FrozenModel::Torch& model, int64_t tokens);

  // x [n, d] through one layer; what autograd needs of it is computed again in the backward pass. `keep` [n] of 0 and 1:
  // tokens that take part; undefined: all. Those that do not are seen by no other token (DynamicViT's
  // softmax_with_policy, and the causal mask); gradients reach `keep`.
  at::Tensor Layer(int layer, const at::Tensor& x, const at::Tensor& keep) const;

  // The same, recorded whole.
  at::Tensor LayerRecorded(int layer, const at::Tensor& x, const at::Tensor& keep) const;

 private:
  at::Tensor Attention(const TorchLayer& layer, const at::Tensor& x, const at::Tensor& keep) const;
  at::Tensor Rotate(const at::Tensor& x) const;
  at::Tensor Weights(const at::Tensor& scores, const at::Tensor& keep) const;

  const FrozenModel::Torch& model_;
  int64_t tokens_;
  at::Tensor cos_, sin_;  // [n, 1, dims / 2]
  at::Tensor visible_;    // [n, n] bool: query i sees key j
  at::Tensor distance_;   // [n, n] j - i, with ALiBi
};

// sum over the response of log p(token), from the hidden states that left the last layer for tokens[0 .. n - 2].
at::Tensor LogLikelihood(const FrozenModel::Torch& model, const TrainingText& text, const at::Tensor& x);

}  // namespace coppice
