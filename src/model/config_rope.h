// The positions in a model's description: RoPE, and the sliding windows of its layers.
#pragma once

#include <string>

#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// What an architecture says about positions where its files do not.
struct PositionTraits {
  double rope_base = 10000;
  double window_rope_base = 0;  // of layers with a window; 0: that of the others
  // GGUF's converter permutes q and k for interleaved RoPE: Llama's, not Qwen2's.
  bool gguf_interleaved = false;
  int global_every = 0;  // every so many layers one attends without the window; 0: none does
};

// Set the windows and ropes of the layers of `c.shape`, which must have its sizes. `prefix` is the
// architecture's, with a dot.
void ReadGgufPositions(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                       const PositionTraits& traits, ModelConfig& c);
void ReadHfPositions(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c);

}  // namespace coppice
