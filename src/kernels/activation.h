// The activations of gated FFNs.
#pragma once

namespace coppice {

// What gate g and up u of a gated FFN give (the last: gpt-oss; transformers, GptOssExperts._apply_gate):
//   kSilu       g / (1 + e^-g) u
//   kGelu       gelu(g) u, gelu in its tanh form
//   kSwiGluOai  h / (1 + e^(-1.702 h)) (v + 1), h = min(g, 7), v = u between -7 and 7
enum class Activation { kSilu, kGelu, kSwiGluOai };
inline constexpr int kActivations = 3;

}  // namespace coppice
