// The sizes and the name of a model. It is all that a pruning method may know of it: never its weights.
#pragma once

#include <cstdint>
#include <string>

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
  bool gated_ffn = true;     // three matrices (SwiGLU) or two
  bool alibi = false;        // positions are ALiBi's biases of attention, not RoPE's rotations
  int32_t window = 0;        // sliding window of every layer; 0: none
};

}  // namespace coppice
