// The sizes and the name of a model. It is all that a pruning method may know of it: never its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coppice {

struct ModelShape {
  std::string architecture;  // "llama", "qwen2", "bloom", ... as GGUF names them
  std::string name;          // the file's general.name, or empty
  int layers = 0;            // L
  int64_t hidden = 0;        // d
  int64_t ffn = 0;           // I
  int heads = 0;             // H
  int kv_heads = 0;          // G
  int head_dim = 0;          // c
  int64_t vocab = 0;         // V
  bool gated_ffn = true;     // three matrices (SwiGLU, GeGLU) or two
  bool alibi = false;        // positions are ALiBi's biases of attention, not RoPE's rotations
  bool post_norms = false;   // a norm after attention and after the FFN, before the residual is added
  int32_t window = 0;        // sliding window of attention; 0: none
  // [layers]: whether the layer attends without the window (Gemma 3). Empty: no layer does.
  std::vector<bool> global_layers = {};

  // The sliding window of a layer; 0: none.
  int32_t WindowOf(int layer) const {
    const bool global = !global_layers.empty() && global_layers[static_cast<size_t>(layer)];
    return global ? 0 : window;
  }
};

}  // namespace coppice
