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
  int global_every = 0;         // every so many layers one attends without the window; 0: none does
};

// `c.shape` must have its sizes, and `c.rope` its order of pairs. `prefix` is the architecture's, with a dot.
void ReadGgufPositions(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                       const PositionTraits& traits, ModelConfig& c);
void ReadHfPositions(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c);

}  // namespace coppice
