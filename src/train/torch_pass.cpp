// The forward pass in libtorch, layer by layer.
//
//   x'  = x  + W_o softmax(q k^T / sqrt(c) + bias) v,   q, k, v = W_qkv norm(x), q and k rotated by RoPE
//   x'' = x' + FFN(norm(x'))
//
// With a keep mask M, in fp32 (softmax_with_policy of DynamicViT, arXiv 2106.02034, equation 10; here also
// causal):
//   A_ij = (exp(z_ij - m_i) P_ij + eps / N_i) / (sum_k exp(z_ik - m_i) P_ik + eps),   P_ij = M_j, P_ii = 1
// over the N_i keys that i sees. m_i is the largest score of a key that takes part, and the exponent of any
// other key is clamped to 0. With the maximum over all keys, a dropped key could make all others vanish
// beside eps, and the pass would no longer match the engine, which removes the token.
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <utility>

#include "model/rope.h"
#include "train/frozen_model_torch.h"

namespace coppice {

namespace {

constexpr double kPolicyEps = 1e-6;

at::Tensor Apply(const TorchLinear& linear, const at::Tensor& x) {
  return linear.bias.defined() ? at::linear(x, linear.weight, linear.bias) : at::linear(x, linear.weight);
}

// Stores a layer's inputs and recomputes the layer for its gradient, so that only one layer's attention
// matrices exist at a time. An empty `keep` means no mask: libtorch 1.13 accepts no undefined tensor as an
// input.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& keep, const TorchPass* pass, int layer) {
    context->save_for_backward({x, keep});
    context->saved_data["pass"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(pass));
    context->saved_data["layer"] = int64_t{layer};
    return pass->LayerRecorded(layer, x, keep.numel() > 0 ? keep : at::Tensor());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode recording(true);
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto* pass =
        reinterpret_cast<const TorchPass*>(static_cast<intptr_t>(context->saved_data["pass"].toInt()));
    const auto layer = static_cast<int>(context->saved_data["layer"].toInt());
    torch::autograd::variable_list inputs = {saved[0].detach().requires_grad_(true)};
    at::Tensor keep;
    if (saved[1].numel() > 0) {
      keep = saved[1].detach().requires_grad_(true);
      inputs.push_back(keep);
    }
    const at::Tensor y = pass->LayerRecorded(layer, inputs[0], keep);
    torch::autograd::variable_list result = torch::autograd::grad({y}, inputs, {gradients[0]});
    result.resize(4);  // no gradients for the pass and the layer
    return result;
  }
};

}  // namespace

at::Tensor FrozenModel::Torch::Norm(const TorchNorm& norm, const at::Tensor& x) const {
  if (norm.bias.defined()) {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred * (centred.square().mean(-1, true) + config.norm_eps).rsqrt() * norm.weight + norm.bias;
  }
  return x * (x.square().mean(-1, true) + config.norm_eps).rsqrt() * norm.weight;
}

at::Tensor FrozenModel::Torch::Logits(const at::Tensor& x) const { return Apply(head, Norm(final_norm, x)); }

TorchPass::TorchPass(const FrozenModel::Torch& model, int64_t tokens) : model_(model), tokens_(tokens) {
  const at::Tensor index = at::arange(tokens, at::kLong);
  const at::Tensor distance = index.unsqueeze(0) - index.unsqueeze(1);  // j - i
  visible_ = distance.le(0);
  if (const int32_t window = model.config.shape.WidestWindow(); window > 0)
    visible_ = visible_ & distance.gt(-window);
  if (model.config.shape.alibi) {
    distance_ = distance.to(at::kFloat);
    return;
  }
  const RopeFrequencies rope = MakeRopeFrequencies(model.config.ropes.front(), model.weights->rope_factors);
  const at::Tensor turns = at::tensor(rope.inverse, at::kDouble);
  const at::Tensor angle = index.to(at::kDouble).unsqueeze(1) * turns.unsqueeze(0);
  cos_ = (angle.cos() * rope.magnitude).to(at::kFloat).unsqueeze(1);
  sin_ = (angle.sin() * rope.magnitude).to(at::kFloat).unsqueeze(1);
}

at::Tensor TorchPass::Layer(int layer, const at::Tensor& x, const at::Tensor& keep) const {
  return Recomputed::apply(x, keep.defined() ? keep : at::empty({0}), this, layer);
}

at::Tensor TorchPass::LayerRecorded(int layer, const at::Tensor& x, const at::Tensor& keep) const {
  const TorchLayer& w = model_.layers[static_cast<size_t>(layer)];
  const at::Tensor attended = x + Attention(w, model_.Norm(w.attention_norm, x), keep);
  const at::Tensor normed = model_.Norm(w.ffn_norm, attended);
  const at::Tensor up = Apply(w.up, normed);
  const at::Tensor inner =
      w.gate.weight.defined() ? at::silu(Apply(w.gate, normed)) * up : at::gelu(up, "tanh");
  return attended + Apply(w.down, inner);
}

// x [n, heads, head_dim]. Rotates the first `dims` dimensions in pairs: neighbours, or dimensions dims / 2
// apart.
at::Tensor TorchPass::Rotate(const at::Tensor& x) const {
  if (!cos_.defined()) return x;
  const int64_t dims = 2 * cos_.size(-1);
  const at::Tensor turned = x.narrow(-1, 0, dims);
  const bool neighbours = model_.config.ropes.front().interleaved;
  const auto half = [&](int64_t which) {
    return neighbours ? turned.unflatten(-1, {dims / 2, 2}).select(-1, which)
                      : turned.narrow(-1, which * dims / 2, dims / 2);
  };
  const at::Tensor a = half(0) * cos_ - half(1) * sin_;
  const at::Tensor b = half(0) * sin_ + half(1) * cos_;
  const at::Tensor y = neighbours ? at::stack({a, b}, -1).flatten(-2) : at::cat({a, b}, -1);
  const int64_t rest = x.size(-1) - dims;
  return rest == 0 ? y : at::cat({y, x.narrow(-1, dims, rest)}, -1);
}

// Turns scores [heads, n, n] into softmax weights.
at::Tensor TorchPass::Weights(const at::Tensor& scores, const at::Tensor& keep) const {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (!keep.defined()) return at::softmax(scores.masked_fill(visible_.logical_not(), kNever), -1);
  const at::Tensor self = at::eye(tokens_, at::kFloat);
  const at::Tensor sees = visible_.to(at::kFloat);
  const at::Tensor policy = (keep.unsqueeze(0) * (1 - self) + self) * sees;  // P [n, n]
  const at::Tensor out = policy.detach().eq(0);
  const at::Tensor largest = scores.detach().masked_fill(out, kNever).amax(-1, true);
  const at::Tensor e = at::exp((scores - largest).clamp_max(0)) * policy;
  const at::Tensor share = sees * (kPolicyEps / sees.sum(-1, true));
  return (e + share) / (e.sum(-1, true) + kPolicyEps);
}

at::Tensor TorchPass::Attention(const TorchLayer& w, const at::Tensor& x, const at::Tensor& keep) const {
  const LayerShape& s = model_.config.shape.layer(0);  // all are equal
  const int64_t n = tokens_;
  const int64_t group = s.heads / s.kv_heads;
  const auto heads = [&](const TorchLinear& linear, int64_t count) {
    return Apply(linear, x).reshape({n, count, s.head_dim});
  };
  // [kv_heads, n, c]. The queries of a group are stacked, so that keys need not be repeated.
  const at::Tensor k = Rotate(heads(w.key, s.kv_heads)).transpose(0, 1);
  const at::Tensor v = heads(w.value, s.kv_heads).transpose(0, 1);
  const at::Tensor q = (Rotate(heads(w.query, s.heads)) * (1 / std::sqrt(static_cast<double>(s.head_dim))))
                           .transpose(0, 1)
                           .reshape({s.kv_heads, group * n, s.head_dim});
  at::Tensor scores = at::bmm(q, k.transpose(1, 2)).reshape({s.heads, n, n});
  if (distance_.defined()) scores = scores + model_.alibi_slopes * distance_;
  const at::Tensor weights = Weights(scores, keep).reshape({s.kv_heads, group * n, n});
  const at::Tensor mixed = at::bmm(weights, v).reshape({s.heads, n, s.head_dim});
  return Apply(w.output, mixed.transpose(0, 1).reshape({n, int64_t{s.heads} * s.head_dim}));
}

}  // namespace coppice
