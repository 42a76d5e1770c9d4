#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/limits.h"

namespace coppice {

namespace {

using Scaling = RopeConfig::Scaling;

void CheckRope(const std::string& path, const std::string& key, const ModelConfig& c) {
  if (c.rope.dims < 2 || c.rope.dims % 2 != 0 || c.rope.dims > c.shape.head_dim) {
    Refuse(path, key,
           fmt::format("= {} is not an even number up to the head's {}", c.rope.dims, c.shape.head_dim));
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

// Layers `every`, 2 `every`, ... (from 1) attend without the window.
std::vector<bool> GlobalLayers(int layers, int64_t every) {
  std::vector<bool> global;
  for (int l = 0; l < layers; ++l) global.push_back((l + 1) % every == 0);
  return global;
}

void ReadGgufRope(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                  const PositionTraits& traits, ModelConfig& c) {
  RopeConfig& r = c.rope;
  const std::string dims_key = prefix + "rope.dimension_count";
  r.dims = static_cast<int>(read.Count(dims_key, limits::kMaxHeadDim, c.shape.head_dim));
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
  CheckRope(read.path, dims_key, c);
  if (traits.window_rope_base > 0)
    c.window_rope = WindowRope(r, read.Positive(prefix + "rope.freq_base_swa", traits.window_rope_base));
}

void ReadGgufWindow(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                    const PositionTraits& traits, ModelConfig& c) {
  const std::string window_key = prefix + "attention.sliding_window";
  const std::optional<int64_t> window = m.Integer(window_key);
  if (!window) return;
  if (*window < 0 || *window > limits::kMaxContext)
    Refuse(read.path, window_key, fmt::format("= {} is out of range", *window));
  c.shape.window = static_cast<int32_t>(*window);
  if (traits.global_every == 0 || *window == 0) return;
  // The distance between two layers without the window, or for each layer whether it has the window.
  const std::string pattern_key = prefix + "attention.sliding_window_pattern";
  std::vector<bool>& global = c.shape.global_layers;
  if (!m.IsArray(pattern_key)) {
    global = GlobalLayers(c.shape.layers, read.Count(pattern_key, limits::kMaxLayers, traits.global_every));
    return;
  }
  global = *m.Bools(pattern_key);
  global.flip();
  if (std::ssize(global) != c.shape.layers)
    Refuse(read.path, pattern_key,
           fmt::format("has {} entries for {} layers", global.size(), c.shape.layers));
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
  RopeConfig& r = c.rope;
  r.dims = c.shape.head_dim;
  r.base = read.Positive("rope_theta", traits.rope_base);
  CheckRope(read.path, "head_dim", c);
  if (traits.window_rope_base > 0)
    c.window_rope = WindowRope(r, read.Positive("rope_local_base_freq", traits.window_rope_base));
  const std::string name = keys.json.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!keys.Has(name)) return;
  const nlohmann::json& object = keys.json[name];
  if (!c.window_rope || !object.is_object() || !object.contains("full_attention"))
    return ReadHfScaling(object, name, read, c.context, r);
  ReadHfScaling(object["full_attention"], name + ".full_attention", read, c.context, r);
  if (object.contains("sliding_attention")) {
    ReadHfScaling(object["sliding_attention"], name + ".sliding_attention", read, c.context, *c.window_rope);
  }
}

// Which layers of a model with windows on some layers attend without one.
std::vector<bool> HfGlobalLayers(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits,
                                 int layers) {
  if (!keys.Has("layer_types")) {
    const char* key =
        keys.Has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
    return GlobalLayers(layers, read.Count(key, limits::kMaxLayers, traits.global_every));
  }
  const nlohmann::json& types = keys.json["layer_types"];
  if (!types.is_array() || std::ssize(types) != layers)
    Refuse(keys.path, "layer_types", fmt::format("is not a list of {} types", layers));
  std::vector<bool> global;
  for (const nlohmann::json& type : types) {
    global.push_back(type == "full_attention");
    if (!global.back() && type != "sliding_attention")
      Refuse(keys.path, "layer_types", "holds a type that is neither full_attention nor sliding_attention");
  }
  return global;
}

// Mistral applies its window to every layer. Qwen2 files have a window too, but most switch it off, and the
// others apply it to the layers from max_window_layers on.
void ReadHfWindow(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c) {
  const bool is_mistral = keys.Text("model_type") == "mistral";
  const bool alternates = traits.global_every > 0;
  if (!keys.Has("sliding_window") || !keys.Flag("use_sliding_window", is_mistral || alternates)) return;
  if (alternates) c.shape.global_layers = HfGlobalLayers(keys, read, traits, c.shape.layers);
  const int64_t first =
      is_mistral || alternates ? 0 : keys.Integer("max_window_layers").value_or(28);  // transformers' default
  if (first >= c.shape.layers) return;
  if (first > 0)
    Refuse(keys.path, "max_window_layers",
           fmt::format("= {}: windows on some layers only are not supported", first));
  c.shape.window = static_cast<int32_t>(read.Count("sliding_window", limits::kMaxContext));
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
