// The frozen model's tensors and passes, for the sources that use libtorch.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "train/frozen_model.h"

namespace coppice {

struct TorchNorm {
  at::Tensor weight;  // [d], undefined if the model has no such norm
  at::Tensor bias;    // [d], or undefined
};

struct TorchLinear {
  at::Tensor weight;  // [outputs, inputs], undefined if the model has no such product
  at::Tensor bias;    // [outputs], or undefined
};

struct TorchLayer {
  TorchNorm attention_norm, ffn_norm;
  TorchLinear query, key, value, output, gate, up, down;
};

struct FrozenModel::Torch {
  ModelConfig config;
  // The rows of the embedding are read from here, and fp32 matrices refer to it.
  std::shared_ptr<const Weights> weights;
  std::vector<TorchLayer> layers;
  TorchNorm embedding_norm, final_norm;
  TorchLinear head;
  at::Tensor alibi_slopes;  // [heads, 1, 1], or undefined

  at::Tensor Embed(std::span<const int32_t> tokens) const;  // [n, d]
  at::Tensor Norm(const TorchNorm& norm, const at::Tensor& x) const;
  at::Tensor Logits(const at::Tensor& x) const;  // [rows, vocab], from outputs of the last layer
};

// The pass of one sequence through the layers. Must outlive its backward pass.
class TorchPass {
 public:
  TorchPass(const FrozenModel::Torch& model, int64_t tokens);

  // x [n, d] through one layer. The backward pass recomputes the layer's intermediate values. `keep` [n] is 1
  // for tokens that take part and 0 for others; undefined means all take part. No other token attends to one
  // that does not take part (softmax_with_policy of DynamicViT, combined with the causal mask). Gradients
  // reach `keep`.
  at::Tensor Layer(int layer, const at::Tensor& x, const at::Tensor& keep) const;

  // The same, recorded for autograd.
  at::Tensor LayerRecorded(int layer, const at::Tensor& x, const at::Tensor& keep) const;

 private:
  at::Tensor Attention(const TorchLayer& layer, const at::Tensor& x, const at::Tensor& keep) const;
  at::Tensor Rotate(const at::Tensor& x) const;
  at::Tensor Weights(const at::Tensor& scores, const at::Tensor& keep) const;

  const FrozenModel::Torch& model_;
  int64_t tokens_;
  at::Tensor cos_, sin_;  // [n, 1, dims / 2]
  at::Tensor visible_;    // [n, n] bool: query i may attend key j
  at::Tensor distance_;   // [n, n] j - i, for ALiBi
};

// The sum over the response of log p(token), from the outputs of the last layer for tokens[0 .. n - 2].
at::Tensor LogLikelihood(const FrozenModel::Torch& model, const TrainingText& text, const at::Tensor& x);

}  // namespace coppice
