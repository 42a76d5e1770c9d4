#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "model/config_gemma4.h"

namespace coppice {

void SetRopes(const RopeConfig& others, const std::optional<RopeConfig>& windowed, bool whole_heads,
              const std::string& path, const std::string& key, ModelConfig& c) {
  c.ropes = {others};
  c.window_ropes = windowed.has_value();
  if (windowed) c.ropes.push_back(*windowed);
  for (LayerShape& layer : c.shape.layers) {
    RopeConfig own = windowed && layer.window > 0 ? *windowed : others;
    if (whole_heads) own.dims = layer.head_dim;
    if (own.dims < 2 || own.dims % 2 != 0 || own.dims > layer.head_dim)
      Refuse(path, key,
             fmt::format("= {} is not an even number up to the head's {}", own.dims, layer.head_dim));
    const auto same = std::ranges::find(c.ropes, own);
    layer.rope = static_cast<int>(same - c.ropes.begin());
    if (same == c.ropes.end()) c.ropes.push_back(own);
  }
}

RopeConfig::Scaling ScalingByName(const std::string& name, const std::string& path, const std::string& key) {
  if (name == "none" || name == "default" || name.empty()) return RopeConfig::Scaling::kNone;
  if (name == "linear") return RopeConfig::Scaling::kLinear;
  if (name == "yarn") return RopeConfig::Scaling::kYarn;
  if (name == "llama3") return RopeConfig::Scaling::kLlama3;
  if (name == "longrope" || name == "su") return RopeConfig::Scaling::kLongRope;
  Refuse(path, key, fmt::format("= '{}' is not supported (none, linear, yarn, llama3, longrope)", name));
}

RopeConfig WindowRope(const RopeConfig& of_others, double base) {
  return {.dims = of_others.dims, .base = base, .interleaved = of_others.interleaved};
}

std::vector<bool> AllBut(int layers, int64_t every, bool from_end) {
  std::vector<bool> windowed;
  for (int l = 0; l < layers; ++l) windowed.push_back((from_end ? layers - 1 - l : l + 1) % every != 0);
  return windowed;
}

void DropRopes(ModelShape& shape) {
  for (LayerShape& layer : shape.layers) layer.rope = kNoRope;
}

void SetWindow(const std::vector<bool>& windowed, int64_t window, ModelShape& shape) {
  for (size_t l = 0; l < windowed.size(); ++l)
    shape.layers[l].window = windowed[l] ? static_cast<int32_t>(window) : 0;
}

double YarnMagnitude(double factor, double mscale, double mscale_all_dim) {
  const auto of = [&](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
  return of(mscale) / of(mscale_all_dim);
}

namespace {

using Scaling = RopeConfig::Scaling;

void ReadGgufTemperature(const KeyReader& read, const std::string& prefix, const PositionTraits& traits,
                         const RopeConfig& rope, ModelConfig& c) {
  const std::string key = prefix + "attention.temperature_scale";
  const double beta = read.number(key).value_or(0);
  if (!(beta >= 0 && beta <= kLargestTemperature))
    Refuse(read.path, key, fmt::format("= {} is not from 0 to {}", beta, kLargestTemperature));
  if (beta == 0) return;
  if (!traits.query_temperature) Refuse(read.path, key, fmt::format("= {} is not supported", beta));
  c.query_temperature = {.beta = beta, .context = rope.original_context};
}

void ReadGgufRope(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                  const PositionTraits& traits, ModelConfig& c) {
  RopeConfig r = {.interleaved = traits.gguf_interleaved};
  const std::string dims_key = prefix + "rope.dimension_count";
  r.dims = static_cast<int>(read.Count(dims_key, limits::kMaxHeadDim, c.shape.layer(0).head_dim));
  r.base = read.Positive(prefix + "rope.freq_base", traits.rope_base);
  const std::string type_key = prefix + "rope.scaling.type";
  r.scaling = ScalingByName(m.String(type_key).value_or("none"), read.path, type_key);
  r.factor =
      read.Positive(prefix + "rope.scaling.factor", read.number(prefix + "rope.scale_linear").value_or(1));
  if (r.scaling == Scaling::kNone && r.factor != 1)
    r.scaling = Scaling::kLinear;  // older files lack the type key
  r.original_context =
      read.Count(prefix + "rope.scaling.original_context_length", limits::kMaxContext, c.context);
  r.beta_fast = read.Positive(prefix + "rope.scaling.yarn_beta_fast", 32);
  r.beta_slow = read.Positive(prefix + "rope.scaling.yarn_beta_slow", 1);
  // As llama.cpp: the multiplier is mscale_all_dim's, and mscale is 1; attn_factor multiplies YaRN's own.
  const std::string log_key = prefix + "rope.scaling.yarn_log_multiplier";
  const double log_multiplier = read.number(log_key).value_or(0);
  if (!std::isfinite(log_multiplier) || log_multiplier < 0)
    Refuse(read.path, log_key, fmt::format("= {} is not a positive number", log_multiplier));
  const std::optional<double> factor = read.number(prefix + "rope.scaling.attn_factor");
  if (r.scaling == Scaling::kYarn && (log_multiplier > 0 || factor)) {
    r.attention_factor = read.Positive(prefix + "rope.scaling.attn_factor", 1) *
                         (log_multiplier > 0 ? YarnMagnitude(r.factor, 1, log_multiplier)
                                             : 0.1 * std::log(std::max(r.factor, 1.0)) + 1);
  }
  // The converter copies transformers' attention_factor, which is the whole factor; llama.cpp overwrites it.
  const std::string whole_key = prefix + "rope.scaling.yarn_attn_factor";
  if (r.scaling == Scaling::kYarn && read.number(whole_key)) r.attention_factor = read.Positive(whole_key, 1);
  // Files of Phi 3 have no type. The factors are tensors, which the weights' loader reads.
  if (traits.long_rope || r.scaling == Scaling::kLongRope) {
    r.scaling = Scaling::kLongRope;
    r.attention_factor = read.Positive(prefix + "rope.scaling.attn_factor", 1);
  }
  std::optional<RopeConfig> windowed;
  if (traits.own_window_rope && (traits.window_rope_base > 0 || c.shape.NarrowestWindow() > 0)) {
    const double base = traits.window_rope_base > 0 ? traits.window_rope_base : r.base;
    windowed = WindowRope(r, read.Positive(prefix + "rope.freq_base_swa", base));
    if (traits.own_window_heads) {
      const auto first =
          std::ranges::find_if(c.shape.layers, [](const LayerShape& l) { return l.window > 0; });
      const int size = first == c.shape.layers.end() ? r.dims : first->head_dim;
      windowed->dims =
          static_cast<int>(read.Count(prefix + "rope.dimension_count_swa", limits::kMaxHeadDim, size));
    }
  }
  SetRopes(r, windowed, !m.Has(dims_key), read.path, dims_key, c);
  ReadGgufTemperature(read, prefix, traits, r, c);
}

// One window for all layers, or for those that the architecture gives it to; or a list. 0: none.
void ReadGgufWindow(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                    const PositionTraits& traits, ModelConfig& c) {
  const std::string window_key = prefix + "attention.sliding_window";
  const int layers = c.shape.layer_count();
  if (!m.Has(window_key)) {
    if (traits.rope_in_windows) Refuse(read.path, window_key, "is missing");
    return;
  }
  const std::optional<std::vector<int64_t>> listed = read.ListOf(window_key, layers);
  const std::vector<int64_t> windows =
      listed ? *listed : std::vector<int64_t>(c.shape.layers.size(), *m.Integer(window_key));
  for (size_t l = 0; l < windows.size(); ++l) {
    const bool too_small = windows[l] < 0 || (windows[l] == 0 && traits.rope_in_windows && !listed);
    if (too_small || windows[l] > limits::kMaxContext)
      Refuse(read.path, window_key, fmt::format("= {} is out of range", windows[l]));
    c.shape.layers[l].window = static_cast<int32_t>(windows[l]);
  }
  if (listed || traits.global_every == 0 || windows.front() == 0) return;
  // The distance between two layers without the window, or for each layer whether it has the window.
  const std::string pattern_key = prefix + "attention.sliding_window_pattern";
  if (!m.IsArray(pattern_key)) {
    const int64_t every = read.Count(pattern_key, limits::kMaxLayers, traits.global_every);
    return SetWindow(AllBut(layers, every), windows.front(), c.shape);
  }
  const std::vector<bool> windowed = *m.Bools(pattern_key);
  if (std::ssize(windowed) != layers)
    Refuse(read.path, pattern_key, fmt::format("has {} entries for {} layers", windowed.size(), layers));
  SetWindow(windowed, windows.front(), c.shape);
}

}  // namespace

void ReadGgufPositions(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                       const PositionTraits& traits, ModelConfig& c) {
  ReadGgufWindow(metadata, read, prefix, traits, c);
  if (traits.own_window_heads) ReadGgufWindowHeads(read, prefix, c);
  if (c.shape.alibi) return;
  if (traits.none) return DropRopes(c.shape);
  ReadGgufRope(metadata, read, prefix, traits, c);
  // llama.cpp's key for a model of Granite's kind that was trained without positions.
  const bool none = !metadata.Bool(prefix + "rope.scaling.finetuned").value_or(true) && traits.finetuned_rope;
  for (int l = 0; l < c.shape.layer_count(); ++l) {
    LayerShape& layer = c.shape.layers[static_cast<size_t>(l)];
    if (none || (traits.no_rope_every > 0 && (l + 1) % traits.no_rope_every == 0) ||
        (traits.rope_in_windows && layer.window == 0))
      layer.rope = kNoRope;
  }
}

}  // namespace coppice
