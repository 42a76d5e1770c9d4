#include "model/config_gemma4.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace coppice {

namespace {

// Each of the last `shared` layers attends the keys of the last layer of its kind, with a window or without,
// that has keys (transformers, configuration_gemma4.py, kv_sharing_modes).
void ShareKeys(int64_t shared, const std::string& path, const std::string& key, ModelConfig& c) {
  std::vector<LayerShape>& layers = c.shape.layers;
  const int64_t own = std::ssize(layers) - shared;
  if (shared < 0 || own < 1)
    Refuse(path, key, fmt::format("= {} is not from 0 to {} layers less 1", shared, layers.size()));
  for (auto l = static_cast<size_t>(own); l < layers.size(); ++l) {
    LayerShape layer = layers[l];
    for (int64_t of = own - 1; of >= 0 && layer.keys_of == kOwnKeys; --of) {
      const LayerShape& other = layers[static_cast<size_t>(of)];
      if ((other.window > 0) != (layer.window > 0)) continue;
      if (other.kv_heads != layer.kv_heads || other.head_dim != layer.head_dim) {
        Refuse(path, key,
               fmt::format("= {}: layer {} attends the keys of layer {}, whose heads have another size",
                           shared, l, of));
      }
      layer.keys_of = static_cast<int>(of);
    }
    if (layer.keys_of == kOwnKeys)
      Refuse(path, key, fmt::format("= {}: layer {} has no layer of its kind with keys", shared, l));
    c.shape.tail.push_back(layer);
  }
  layers.resize(static_cast<size_t>(own));
}

int64_t Optional(const KeyReader& read, const std::string& key, int64_t most) {
  const int64_t value = read.integer(key).value_or(0);
  if (value < 0 || value > most) Refuse(read.path, key, fmt::format("= {} is not from 0 to {}", value, most));
  return value;
}

void ReadRest(const KeyReader& read, const std::string& shared_key, const std::string& width_key,
              const std::string& cap_key, ModelConfig& c) {
  c.attention_scale = 1;
  c.embedding_scale = std::sqrt(static_cast<double>(c.shape.hidden));
  c.shape.layer_embedding = Optional(read, width_key, limits::kMaxHidden);
  if (read.number(cap_key).value_or(0) != 0) c.logit_cap = read.Positive(cap_key, 1);
  ShareKeys(Optional(read, shared_key, limits::kMaxLayers), read.path, shared_key, c);
}

}  // namespace

void ReadGgufWindowHeads(const KeyReader& read, const std::string& prefix, ModelConfig& c) {
  const std::string key = prefix + "attention.key_length";
  for (const auto& [keys, values] : {std::pair{key, prefix + "attention.value_length"},
                                     std::pair{key + "_swa", prefix + "attention.value_length_swa"}}) {
    const std::optional<int64_t> of_keys = read.integer(keys);
    const std::optional<int64_t> of_values = read.integer(values);
    if (of_keys && of_values && *of_keys != *of_values)
      Refuse(read.path, values, fmt::format("= {} differs from {} = {}", *of_values, keys, *of_keys));
  }
  if (!read.Has(key + "_swa")) return;
  const auto size = static_cast<int>(read.Count(key + "_swa", limits::kMaxHeadDim));
  for (LayerShape& layer : c.shape.layers) {
    if (layer.window > 0) layer.head_dim = size;
  }
}

void ReadGgufGemma4(const KeyReader& read, const std::string& prefix, ModelConfig& c) {
  ReadRest(read, prefix + "attention.shared_kv_layers", prefix + "embedding_length_per_layer_input",
           prefix + "final_logit_softcapping", c);
}

namespace {

void SetHeads(LayerShape& layer, const KeyReader& read, const std::string& key, int64_t head_dim,
              int64_t kv_heads) {
  if (head_dim < 1 || head_dim > limits::kMaxHeadDim)
    Refuse(read.path, key, fmt::format("gives heads of {} channels", head_dim));
  if (kv_heads < 1 || layer.heads % kv_heads != 0) {
    Refuse(read.path, key,
           fmt::format("gives {} key/value heads, which do not divide num_attention_heads = {}", kv_heads,
                       layer.heads));
  }
  layer.head_dim = static_cast<int>(head_dim);
  layer.kv_heads = static_cast<int>(kv_heads);
}

// transformers' newer form: what differs, by the number of the layer.
void ReadLayerConfigs(const nlohmann::json& by_layer, const KeyReader& read, ModelConfig& c) {
  constexpr const char* kKey = "per_layer_config";
  if (!by_layer.is_object()) Refuse(read.path, kKey, "is not an object");
  for (const auto& [name, changes] : by_layer.items()) {
    const std::string key = fmt::format("{}.{}", kKey, name);
    int l = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), l);
    if (error != std::errc() || end != name.data() + name.size() || l < 0 || l >= c.shape.layer_count())
      Refuse(read.path, key, fmt::format("is none of {} layers", c.shape.layer_count()));
    if (!changes.is_object()) Refuse(read.path, key, "is not an object");
    LayerShape& layer = c.shape.layers[static_cast<size_t>(l)];
    for (const auto& [field, value] : changes.items()) {
      if ((field != "head_dim" && field != "num_key_value_heads") || !value.is_number_integer() ||
          value.get<int64_t>() > INT32_MAX)
        Refuse(read.path, key, fmt::format("has {} = {}, which is not supported", field, value.dump()));
    }
    SetHeads(layer, read, key, changes.value("head_dim", int64_t{layer.head_dim}),
             changes.value("num_key_value_heads", int64_t{layer.kv_heads}));
  }
}

}  // namespace

void ReadHfGlobalHeads(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  c.shape.layers.back().window = 0;  // as transformers forces it
  if (keys.Has("per_layer_config")) return ReadLayerConfigs(keys.json["per_layer_config"], read, c);
  const int64_t size = read.Count("global_head_dim", limits::kMaxHeadDim, 512);
  // transformers reads it where values are keys alone.
  const bool other_count = keys.Flag("attention_k_eq_v", false) && keys.Has("num_global_key_value_heads");
  for (LayerShape& layer : c.shape.layers) {
    if (layer.window > 0) continue;
    const int64_t kv_heads =
        other_count ? read.Count("num_global_key_value_heads", limits::kMaxHeads) : layer.kv_heads;
    SetHeads(layer, read, other_count ? "num_global_key_value_heads" : "global_head_dim", size, kv_heads);
  }
}

void ReadHfGemma4(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  if (!keys.Text("use_bidirectional_attention").empty() &&
      keys.Text("use_bidirectional_attention") != "vision")
    Refuse(keys.path, "use_bidirectional_attention", "is not supported for text");
  ReadRest(read, "num_kv_shared_layers", "hidden_size_per_layer_input", "final_logit_softcapping", c);
  const int64_t rows = read.integer("vocab_size_per_layer_input").value_or(0);
  const int64_t vocab = read.integer("vocab_size").value_or(0);
  if (c.shape.layer_embedding > 0 && rows != vocab)
    Refuse(keys.path, "vocab_size_per_layer_input",
           fmt::format("= {} differs from vocab_size = {}", rows, vocab));
  if (!keys.Flag("use_double_wide_mlp", false)) return;
  for (LayerShape& layer : c.shape.tail) layer.ffn *= 2;
}

}  // namespace coppice
