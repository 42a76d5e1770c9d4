#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/limits.h"

namespace coppice {

namespace {

using Scaling = RopeConfig::Scaling;

// Gives each layer its rope; `windowed`: of layers with a sliding window, if they have their own. With
// `whole_heads` a rope turns all dimensions of a layer's heads, whatever its own `dims`. `key` names the
// dimensions in the file.
void SetRopes(const RopeConfig& others, const std::optional<RopeConfig>& windowed, bool whole_heads,
              const std::string& path, const std::string& key, ModelConfig& c) {
  c.ropes = {others};
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

Scaling ScalingByName(const std::string& name, const std::string& path, const std::string& key) {
  if (name == "none" || name == "default" || name.empty()) return Scaling::kNone;
  if (name == "linear") return Scaling::kLinear;
  if (name == "yarn") return Scaling::kYarn;
  if (name == "llama3") return Scaling::kLlama3;
  Refuse(path, key, fmt::format("= '{}' is not supported (none, linear, yarn, llama3)", name));
}

// RoPE without scaling, of the layers with a window.
RopeConfig WindowRope(const RopeConfig& of_others, double base) {
  return {.dims = of_others.dims, .base = base, .interleaved = of_others.interleaved};
}

// Whether each layer attends within the window: all but the layers `every`, 2 `every`, ... (from 1).
std::vector<bool> AllBut(int layers, int64_t every) {
  std::vector<bool> windowed;
  for (int l = 0; l < layers; ++l) windowed.push_back((l + 1) % every != 0);
  return windowed;
}

void SetWindow(const std::vector<bool>& windowed, int64_t window, ModelShape& shape) {
  for (size_t l = 0; l < windowed.size(); ++l)
    shape.layers[l].window = windowed[l] ? static_cast<int32_t>(window) : 0;
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
  if (const auto factor = read.number(prefix + "rope.scaling.attn_factor")) {
    r.attention_factor =
        *factor * (0.1 * std::log(std::max(r.factor, 1.0)) + 1);  // GGUF's factor multiplies YaRN's own
  }
  std::optional<RopeConfig> windowed;
  if (traits.window_rope_base > 0)
    windowed = WindowRope(r, read.Positive(prefix + "rope.freq_base_swa", traits.window_rope_base));
  SetRopes(r, windowed, !m.Has(dims_key), read.path, dims_key, c);
}

// One window for all layers, or for those that the architecture gives it to; or a list. 0: none.
void ReadGgufWindow(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                    const PositionTraits& traits, ModelConfig& c) {
  const std::string window_key = prefix + "attention.sliding_window";
  const int layers = c.shape.layer_count();
  if (!m.Has(window_key)) return;
  const std::optional<std::vector<int64_t>> listed = read.ListOf(window_key, layers);
  const std::vector<int64_t> windows =
      listed ? *listed : std::vector<int64_t>(c.shape.layers.size(), *m.Integer(window_key));
  for (size_t l = 0; l < windows.size(); ++l) {
    if (windows[l] < 0 || windows[l] > limits::kMaxContext)
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

// A positive number of the object `scaling`, which config.json calls `name`.
double ScalingNumber(const nlohmann::json& scaling, const std::string& name, const char* key, double fallback,
                     const std::string& path) {
  const auto it = scaling.find(key);
  const double v = it == scaling.end() || it->is_null() ? fallback : it->is_number() ? it->get<double>() : -1;
  if (!std::isfinite(v) || v < 0) Refuse(path, name + "." + key, "is not a positive number");
  return v;
}

// Changes `r` by the object `scaling`.
void ReadHfScaling(const nlohmann::json& scaling, const std::string& name, const KeyReader& read,
                   int64_t context, RopeConfig& r) {
  if (!scaling.is_object()) Refuse(read.path, name, "is not an object");
  const auto number = [&](const char* key, double fallback) {
    return ScalingNumber(scaling, name, key, fallback, read.path);
  };
  const auto type = scaling.contains("rope_type") ? scaling.find("rope_type") : scaling.find("type");
  if (type == scaling.end() || !type->is_string()) Refuse(read.path, name + ".rope_type", "is not a string");
  r.scaling = ScalingByName(type->get<std::string>(), read.path, name + ".rope_type");
  r.base = number("rope_theta", r.base);
  if (r.base <= 0) Refuse(read.path, name + ".rope_theta", "is not a positive number");
  r.factor = number("factor", 1);
  if (r.factor <= 0) Refuse(read.path, name + ".factor", "is not a positive number");
  const double original = number("original_max_position_embeddings", static_cast<double>(context));
  if (original < 1 || original > static_cast<double>(limits::kMaxContext)) {
    Refuse(read.path, name + ".original_max_position_embeddings",
           fmt::format("= {} is out of range", original));
  }
  r.original_context = static_cast<int64_t>(original);
  r.low_freq_factor = number("low_freq_factor", 1);
  r.high_freq_factor = number("high_freq_factor", 4);
  r.beta_fast = number("beta_fast", 32);
  r.beta_slow = number("beta_slow", 1);
  r.attention_factor = number("attention_factor", 0);
  if (r.scaling == Scaling::kLlama3 && r.high_freq_factor <= r.low_freq_factor) {
    Refuse(read.path, name + ".high_freq_factor", "is not above low_freq_factor");
  }
}

// Older files have rope_theta and rope_scaling, and for layers with a window rope_local_base_freq, without
// scaling. Newer ones have rope_parameters, with theta inside; if layers differ, one object for each kind.
void ReadHfRope(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c) {
  RopeConfig r = {.dims = c.shape.layer(0).head_dim, .base = read.Positive("rope_theta", traits.rope_base)};
  std::optional<RopeConfig> windowed;
  if (traits.window_rope_base > 0)
    windowed = WindowRope(r, read.Positive("rope_local_base_freq", traits.window_rope_base));
  const std::string name = keys.json.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (keys.Has(name)) {
    const nlohmann::json& object = keys.json[name];
    const bool by_kind = windowed && object.is_object() && object.contains("full_attention");
    if (by_kind && object.contains("sliding_attention"))
      ReadHfScaling(object["sliding_attention"], name + ".sliding_attention", read, c.context, *windowed);
    ReadHfScaling(by_kind ? object["full_attention"] : object, by_kind ? name + ".full_attention" : name,
                  read, c.context, r);
  }
  SetRopes(r, windowed, /*whole_heads=*/true, read.path, "head_dim", c);
}

// Which layers have the window, of a model that has one: Mistral's all, and Qwen2's from max_window_layers
// on. Newer files list the layers' types.
std::vector<bool> HfWindowed(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits,
                             const ModelShape& shape) {
  const int layers = shape.layer_count();
  if (keys.Has("layer_types")) {
    const nlohmann::json& types = keys.json["layer_types"];
    if (!types.is_array() || std::ssize(types) != layers)
      Refuse(keys.path, "layer_types", fmt::format("is not a list of {} types", layers));
    std::vector<bool> windowed;
    for (const nlohmann::json& type : types) {
      windowed.push_back(type == "sliding_attention");
      if (!windowed.back() && type != "full_attention")
        Refuse(keys.path, "layer_types", "holds a type that is neither full_attention nor sliding_attention");
    }
    return windowed;
  }
  if (traits.global_every > 0) {
    const char* key =
        keys.Has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
    return AllBut(layers, read.Count(key, limits::kMaxLayers, traits.global_every));
  }
  const int64_t first = keys.Text("model_type") == "mistral"
                            ? 0
                            : keys.Integer("max_window_layers").value_or(28);  // transformers' default
  std::vector<bool> windowed;
  for (int l = 0; l < layers; ++l) windowed.push_back(l >= first);
  return windowed;
}

// Qwen2 files have a window too, but most switch it off.
void ReadHfWindow(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c) {
  const bool usual = keys.Text("model_type") == "mistral" || traits.global_every > 0;
  if (!keys.Has("sliding_window") || !keys.Flag("use_sliding_window", usual)) return;
  SetWindow(HfWindowed(keys, read, traits, c.shape), read.Count("sliding_window", limits::kMaxContext),
            c.shape);
}

}  // namespace

void ReadGgufPositions(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                       const PositionTraits& traits, ModelConfig& c) {
  ReadGgufWindow(metadata, read, prefix, traits, c);
  if (!c.shape.alibi) ReadGgufRope(metadata, read, prefix, traits, c);
}

void ReadHfPositions(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits,
                     ModelConfig& c) {
  ReadHfWindow(keys, read, traits, c);
  ReadHfRope(keys, read, traits, c);
}

}  // namespace coppice
