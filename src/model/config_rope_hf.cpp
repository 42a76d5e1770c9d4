// The positions in a config.json. Older files have rope_theta and rope_scaling; newer ones rope_parameters,
// with theta inside, and where layers differ one object for each kind of layer.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "model/config_gemma4.h"
#include "model/config_rope.h"

namespace coppice {

namespace {

using Scaling = RopeConfig::Scaling;

// The keys of a rope's object that the reader knows, or that change nothing: the sections of Qwen3-VL's rope
// turn text by one position, and `finetuned` is a remark.
constexpr std::string_view kRopeKeys[] = {"rope_type",        "type",
                                          "rope_theta",       "factor",
                                          "low_freq_factor",  "beta_fast",
                                          "beta_slow",        "original_max_position_embeddings",
                                          "high_freq_factor", "mscale",
                                          "mscale_all_dim",   "partial_rotary_factor",
                                          "attention_factor", "truncate",
                                          "short_factor",     "llama_4_scaling_beta",
                                          "long_factor",      "mrope_section",
                                          "finetuned",        "max_position_embeddings",
                                          "full_attention",   "sliding_attention",
                                          "mrope_interleaved"};

// The object of one rope, which config.json calls `name`. A null value counts as absent.
struct RopeObject {
  const nlohmann::json& json;
  std::string name;
  const std::string& path;

  bool Has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  double Number(const char* key, double fallback) const {
    const double v = !Has(key) ? fallback : json[key].is_number() ? json[key].get<double>() : -1;
    if (!std::isfinite(v) || v < 0) Refuse(path, name + "." + key, "is not a positive number");
    return v;
  }
  double Positive(const char* key, double fallback) const {
    const double v = Number(key, fallback);
    if (v == 0) Refuse(path, name + "." + key, "is not a positive number");
    return v;
  }
};

void CheckObject(const nlohmann::json& json, const std::string& name, const std::string& path) {
  if (!json.is_object()) Refuse(path, name, "is not an object");
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kRopeKeys, key) == std::end(kRopeKeys) && !value.is_null())
      Refuse(path, name + "." + key, "is not supported");
  }
}

Scaling ReadType(const RopeObject& object) {
  const char* key = object.json.contains("rope_type") ? "rope_type" : "type";
  if (!object.json.contains(key) && !object.Has("factor")) return Scaling::kNone;
  if (!object.Has(key) || !object.json[key].is_string())
    Refuse(object.path, object.name + ".rope_type", "is not a string");
  if (object.json[key] == "proportional") return Scaling::kProportional;
  const Scaling scaling =
      ScalingByName(object.json[key].get<std::string>(), object.path, object.name + ".rope_type");
  // Older files of Phi 3 call it so.
  return scaling == Scaling::kYarn && object.Has("long_factor") ? Scaling::kLongRope : scaling;
}

void ReadYarn(const RopeObject& object, RopeConfig& r) {
  // As transformers, where 0 counts as absent.
  const auto beta = [&](const char* key, double usual) {
    const double v = object.Number(key, usual);
    return v == 0 ? usual : v;
  };
  r.beta_fast = beta("beta_fast", 32);
  r.beta_slow = beta("beta_slow", 1);
  if (object.Has("attention_factor")) {
    r.attention_factor = object.Positive("attention_factor", 1);
  } else if (object.Number("mscale", 0) > 0 && object.Number("mscale_all_dim", 0) > 0) {
    r.attention_factor =
        YarnMagnitude(r.factor, object.Number("mscale", 0), object.Number("mscale_all_dim", 0));
  }
}

// The factors of each pair of dimensions.
std::vector<float> ReadFactors(const RopeObject& object, const char* key, int dims) {
  const std::string name = object.name + "." + key;
  if (!object.Has(key)) Refuse(object.path, name, "is missing");
  const nlohmann::json& list = object.json[key];
  if (!list.is_array() || std::ssize(list) != dims / 2)
    Refuse(object.path, name, fmt::format("is not a list of {} numbers", dims / 2));
  std::vector<float> factors;
  for (const nlohmann::json& value : list) {
    const double factor = value.is_number() ? value.get<double>() : 0;
    if (!(factor > 1e-30 && factor < 1e30)) Refuse(object.path, name, "holds a value that is not positive");
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// What transformers takes from the whole file.
struct RopeContext {
  int64_t context;                  // max_position_embeddings
  std::optional<int64_t> original;  // original_max_position_embeddings beside the object, which goes first
};

// Changes `r` by the object.
void ReadObject(const RopeObject& object, const RopeContext& of_file, RopeConfig& r) {
  r.scaling = ReadType(object);
  r.base = object.Positive("rope_theta", r.base);
  const double original = of_file.original ? static_cast<double>(*of_file.original)
                                           : object.Number("original_max_position_embeddings",
                                                           static_cast<double>(of_file.context));
  if (original < 1 || original > static_cast<double>(limits::kMaxContext)) {
    Refuse(object.path, object.name + ".original_max_position_embeddings",
           fmt::format("= {} is out of range", original));
  }
  r.original_context = static_cast<int64_t>(original);
  if (r.scaling == Scaling::kNone) return;
  const bool by_contexts = r.scaling == Scaling::kYarn || r.scaling == Scaling::kLongRope;
  if (r.scaling == Scaling::kProportional) {
    r.rotating = object.Number("partial_rotary_factor", 1);
    if (r.rotating > 1)
      Refuse(object.path, object.name + ".partial_rotary_factor", fmt::format("= {} is above 1", r.rotating));
    r.factor = object.Positive("factor", 1);
    return;
  }
  if (!object.Has("factor") && !by_contexts) Refuse(object.path, object.name + ".factor", "is missing");
  r.factor = object.Positive("factor", static_cast<double>(of_file.context) / original);
  r.low_freq_factor = object.Number("low_freq_factor", 1);
  r.high_freq_factor = object.Number("high_freq_factor", 4);
  if (r.scaling == Scaling::kYarn) ReadYarn(object, r);
  if (r.scaling == Scaling::kLongRope) {
    r.short_factors = ReadFactors(object, "short_factor", r.dims);
    r.long_factors = ReadFactors(object, "long_factor", r.dims);
    if (object.Has("attention_factor")) r.attention_factor = object.Positive("attention_factor", 1);
    if (r.attention_factor == 0 && r.factor > 1 && r.original_context < 2)
      Refuse(object.path, object.name + ".original_max_position_embeddings", "= 1 is too short");
  }
  if (r.scaling == Scaling::kLlama3 && r.high_freq_factor <= r.low_freq_factor)
    Refuse(object.path, object.name + ".high_freq_factor", "is not above low_freq_factor");
}

double PartialFactor(const HfKeys& keys, const nlohmann::json& rope) {
  const auto own = rope.find("partial_rotary_factor");
  const double factor = own != rope.end() && own->is_number()
                            ? own->get<double>()
                            : keys.Number("partial_rotary_factor").value_or(1);
  if (!(factor > 0 && factor <= 1))
    Refuse(keys.path, "partial_rotary_factor", fmt::format("= {} is not from 0 to 1", factor));
  return factor;
}

// A head is turned in part only by the models whose transformers code reads the factor. The others ignore it
// without scaling, and cannot run with it.
void RefusePartial(const HfKeys& keys, const nlohmann::json& rope, const RopeConfig& r) {
  if (r.scaling == Scaling::kNone || r.scaling == Scaling::kProportional) return;
  if (const double factor = PartialFactor(keys, rope); factor != 1) {
    Refuse(keys.path, "partial_rotary_factor",
           fmt::format("= {} is not supported for this model_type with a scaled RoPE", factor));
  }
}

// transformers reads this one beside the objects of the kinds of layers, never inside them.
bool Truncates(const nlohmann::json& rope, const std::string& name, const std::string& path) {
  const auto it = rope.find("truncate");
  if (it == rope.end() || it->is_null()) return true;
  if (!it->is_boolean()) Refuse(path, name + ".truncate", "is not true or false");
  return it->get<bool>();
}

// The name of the object that counts, or "".
std::string RopeName(const HfKeys& keys) {
  if (keys.Has("rope_scaling") &&
      !(keys.json["rope_scaling"].is_object() && keys.json["rope_scaling"].empty()))
    return "rope_scaling";
  return keys.Has("rope_parameters") ? "rope_parameters" : "";
}

void ReadTemperature(const RopeObject& object, const PositionTraits& traits, const RopeConfig& r,
                     ModelConfig& c) {
  if (!traits.query_temperature) return;
  const double beta = object.Number("llama_4_scaling_beta", 0);
  const int64_t context = r.scaling == Scaling::kNone ? c.context : r.original_context;
  if (beta > kLargestTemperature)
    Refuse(object.path, object.name + ".llama_4_scaling_beta", fmt::format("= {} is too large", beta));
  if (beta > 0) c.query_temperature = {.beta = beta, .context = context};
}

void ReadRope(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c) {
  RopeConfig r = {.dims = c.shape.layer(0).head_dim, .base = read.Positive("rope_theta", traits.rope_base)};
  const RopeContext of_file{c.context, keys.Integer("original_max_position_embeddings")};
  const std::string name = RopeName(keys);
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json& json = name.empty() ? none : keys.json[name];
  CheckObject(json, name, keys.path);
  const double part = traits.partial_rotary ? PartialFactor(keys, json) : 1;
  r.dims = static_cast<int>(r.dims * part);
  if (!name.empty()) {
    const RopeObject object{json, name, keys.path};
    ReadObject(object, of_file, r);
    r.truncate = Truncates(json, name, keys.path);
    if (!traits.partial_rotary) RefusePartial(keys, json, r);
    ReadTemperature(object, traits, r, c);
  }
  SetRopes(r, std::nullopt, /*whole_heads=*/part == 1, read.path,
           part == 1 ? "head_dim" : "partial_rotary_factor", c);
}

// Of models whose layers with a window have their own rope (Gemma 3, OLMo 3).
void ReadTwoRopes(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, ModelConfig& c) {
  RopeConfig r = {.dims = c.shape.layer(0).head_dim, .base = read.Positive("rope_theta", traits.rope_base)};
  RopeConfig windowed = WindowRope(r, read.Positive("rope_local_base_freq", traits.hf_window_rope_base));
  const RopeContext of_file{c.context, std::nullopt};
  nlohmann::json full = nlohmann::json::object();
  std::string name = "rope_scaling";
  bool truncate = true;
  if (keys.Has("rope_parameters")) {
    const nlohmann::json& both = keys.json["rope_parameters"];
    CheckObject(both, "rope_parameters", keys.path);
    truncate = Truncates(both, "rope_parameters", keys.path);
    const bool by_kind = both.contains("full_attention") || both.contains("sliding_attention");
    name = by_kind ? "rope_parameters.full_attention" : "rope_parameters";
    if (!by_kind) full = both;
    if (by_kind && both.contains("full_attention") && !both["full_attention"].is_null())
      full = both["full_attention"];
    if (by_kind && both.contains("sliding_attention") && !both["sliding_attention"].is_null()) {
      const std::string of_windows = "rope_parameters.sliding_attention";
      CheckObject(both["sliding_attention"], of_windows, keys.path);
      ReadObject({both["sliding_attention"], of_windows, keys.path}, of_file, windowed);
    }
  }
  CheckObject(full, name, keys.path);
  if (keys.Has("rope_scaling")) {
    CheckObject(keys.json["rope_scaling"], "rope_scaling", keys.path);
    full.update(keys.json["rope_scaling"]);
    name = "rope_scaling";
  }
  ReadObject({full, name, keys.path}, of_file, r);
  r.truncate = windowed.truncate = truncate;
  RefusePartial(keys, full, r);
  SetRopes(r, windowed, /*whole_heads=*/true, read.path, "head_dim", c);
}

// The kinds of layers that layer_types names, or nullopt where the file has none.
std::optional<std::vector<bool>> ListedWindows(const HfKeys& keys, int layers) {
  if (!keys.Has("layer_types")) return std::nullopt;
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

// SmolLM3: which layers rotate.
std::vector<bool> RotatingLayers(const HfKeys& keys, const KeyReader& read, int layers) {
  if (!keys.Has("no_rope_layers")) {
    return AllBut(layers, read.Count("no_rope_layer_interval", limits::kMaxLayers, 4));
  }
  const nlohmann::json& list = keys.json["no_rope_layers"];
  if (!list.is_array() || std::ssize(list) < layers)
    Refuse(keys.path, "no_rope_layers", fmt::format("is not a list of {} numbers", layers));
  std::vector<bool> rotates;
  for (size_t l = 0; l < static_cast<size_t>(layers); ++l) {
    if (!list[l].is_number_integer() && !list[l].is_boolean())
      Refuse(keys.path, "no_rope_layers", "holds a value that is neither 0 nor 1");
    rotates.push_back(list[l].is_boolean() ? list[l].get<bool>() : list[l] != 0);
  }
  return rotates;
}

// Muse Glimmer: which layers rotate. transformers takes a theta of 0 for none, and the others' from the rope.
std::vector<bool> LayersWithTheta(const HfKeys& keys, const PositionTraits& traits, int layers) {
  const char* key = "layer_rope_theta";
  if (!keys.Has(key)) return AllBut(layers, traits.global_every, /*from_end=*/true);
  const nlohmann::json& list = keys.json[key];
  if (!list.is_array() || std::ssize(list) < layers)
    Refuse(keys.path, key, fmt::format("is not a list of {} numbers", layers));
  std::vector<bool> rotates;
  for (size_t l = 0; l < static_cast<size_t>(layers); ++l) {
    if (!list[l].is_number()) Refuse(keys.path, key, "holds a value that is not a number");
    rotates.push_back(list[l].get<double>() != 0);
  }
  return rotates;
}

std::vector<bool> WindowedLayers(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits,
                                 WindowRule rule, const ModelShape& shape) {
  const int layers = shape.layer_count();
  std::optional<std::vector<bool>> listed = ListedWindows(keys, layers);
  if (rule == WindowRule::kPattern) {
    const char* key =
        keys.Has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
    return listed ? *listed : AllBut(layers, read.Count(key, limits::kMaxLayers, traits.global_every));
  }
  std::vector<bool> windowed(static_cast<size_t>(layers), rule == WindowRule::kEveryLayer);
  if (rule == WindowRule::kPatternFromEnd) {
    return listed ? *listed : AllBut(layers, traits.global_every, /*from_end=*/true);
  }
  if (rule == WindowRule::kEveryLayer) return listed ? *listed : windowed;
  const bool used = keys.Flag("use_sliding_window", false);
  if (rule == WindowRule::kEveryLayerIfUsed) return std::vector<bool>(windowed.size(), used);
  if (!used && listed && std::ranges::find(*listed, true) != listed->end()) {
    Refuse(keys.path, "use_sliding_window",
           "is not true, but layer_types has layers of sliding_attention: transformers does not run it");
  }
  const bool by_layer = rule == WindowRule::kFromLayer || rule == WindowRule::kEvenUpTo;
  const int64_t first = by_layer ? keys.Integer("max_window_layers").value_or(0) : 0;
  const std::vector<bool> rotates =
      rule == WindowRule::kNoRopeLayers ? RotatingLayers(keys, read, layers) : std::vector<bool>();
  const bool to_last = rule != WindowRule::kEvenUpTo;
  for (int l = 0; used && l < layers; ++l) {
    const auto at = static_cast<size_t>(l);
    windowed[at] = !rotates.empty() ? !rotates[at] : to_last ? l >= first : l < first && l % 2 == 0;
  }
  return used && listed ? *listed : windowed;
}

void ReadWindow(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, WindowRule rule,
                ModelConfig& c) {
  if (rule == WindowRule::kNever) return;
  const std::vector<bool> windowed = WindowedLayers(keys, read, traits, rule, c.shape);
  const bool has_window = keys.Has("sliding_window");
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  if (!has_window) {
    // transformers does not run these either.
    if (rule == WindowRule::kPatternFromEnd) Refuse(keys.path, "sliding_window", "is missing");
    return;
  }
  SetWindow(windowed, read.Count("sliding_window", limits::kMaxContext), c.shape);
}

}  // namespace

void ReadHfPositions(const HfKeys& keys, const KeyReader& read, const PositionTraits& traits, WindowRule rule,
                     ModelConfig& c) {
  ReadWindow(keys, read, traits, rule, c);
  if (traits.none) return DropRopes(c.shape);
  if (traits.own_window_heads) ReadHfGlobalHeads(keys, read, c);
  if (traits.own_window_rope && rule == WindowRule::kPattern) {
    ReadTwoRopes(keys, read, traits, c);
  } else {
    ReadRope(keys, read, traits, c);
  }
  if (traits.hf_rope_if_named && keys.Text("position_embedding_type") != "rope") DropRopes(c.shape);
  if (traits.no_rope_every == 0 && !traits.rope_in_windows) return;
  const int layers = c.shape.layer_count();
  const std::vector<bool> rotates =
      traits.rope_in_windows ? LayersWithTheta(keys, traits, layers) : RotatingLayers(keys, read, layers);
  for (size_t l = 0; l < rotates.size(); ++l) {
    if (!rotates[l]) c.shape.layers[l].rope = kNoRope;
  }
}

}  // namespace coppice
