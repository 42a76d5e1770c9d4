// The activations of gated FFNs, and of the gates on what a mixer gives.
#pragma once

namespace coppice {

// What gate g and up u of a gated FFN give, or the gate and attention's output (kSwiGluOai: gpt-oss;
// transformers, GptOssExperts._apply_gate):
//   kSilu       g / (1 + e^-g) u
//   kGelu       gelu(g) u, gelu in its tanh form
//   kSwiGluOai  h / (1 + e^(-1.702 h)) (v + 1), h = min(g, 7), v = u between -7 and 7
//   kSigmoid    u / (1 + e^-g)
//   kIdentity   g u
//   kRelu       max(g, 0) u: with g for u, the squared ReLU of an FFN without a gate
enum class Activation { kSilu, kGelu, kSwiGluOai, kSigmoid, kIdentity, kRelu };
inline constexpr int kActivations = 6;

}  // namespace coppice
