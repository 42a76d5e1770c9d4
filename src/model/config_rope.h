// The positions in a model's description: RoPE, and the sliding windows of its layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/architectures.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// Set the windows and ropes of the layers of `c.shape`, which must have its sizes, and the temperature of
// queries. `prefix` is the architecture's, with a dot.
void ReadGgufPositions(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                       const PositionTraits& traits, ModelConfig& c);
void ReadHfPositions(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits,
                     WindowRule windows, ModelConfig& c);

// ---- Of both formats

inline constexpr double kLargestTemperature = 1000;  // QueryTemperature::beta; models have 0.1

// Gives each layer its rope; `windowed`: of layers with a sliding window, if they have their own. With
// `whole_heads` a rope turns all dimensions of a layer's heads, whatever its own `dims`. `key` names the
// dimensions in the file.
void SetRopes(const RopeConfig& others, const std::optional<RopeConfig>& windowed, bool whole_heads,
              const std::string& path, const std::string& key, ModelConfig& c);
void DropRopes(ModelShape& shape);
// RoPE without scaling, of the layers with a window.
RopeConfig WindowRope(const RopeConfig& of_others, double base);
RopeConfig::Scaling ScalingByName(const std::string& name, const std::string& path, const std::string& key);
// Whether each layer attends within the window: all but the layers `every`, 2 `every`, ... (from 1), or all
// but the last one, the one `every` layers before it, ...
std::vector<bool> AllBut(int layers, int64_t every, bool from_end = false);
void SetWindow(const std::vector<bool>& windowed, int64_t window, ModelShape& shape);
// YaRN's factor on cosines and sines, m(mscale) / m(mscale_all_dim) with m(a) = 0.1 a ln(factor) + 1, as
// DeepSeek's models have it (transformers, modeling_rope_utils.py). Neither multiplier is 0.
double YarnMagnitude(double factor, double mscale, double mscale_all_dim);

}  // namespace coppice
