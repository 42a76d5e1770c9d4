// The activations of gated FFNs, and of the gate on attention's output.
#pragma once

namespace coppice {

// What gate g and up u of a gated FFN give, or the gate and attention's output (kSwiGluOai: gpt-oss;
// transformers, GptOssExperts._apply_gate):
//   kSilu       g / (1 + e^-g) u
//   kGelu       gelu(g) u, gelu in its tanh form
//   kSwiGluOai  h / (1 + e^(-1.702 h)) (v + 1), h = min(g, 7), v = u between -7 and 7
//   kSigmoid    u / (1 + e^-g)
enum class Activation { kSilu, kGelu, kSwiGluOai, kSigmoid };
inline constexpr int kActivations = 4;

}  // namespace coppice
