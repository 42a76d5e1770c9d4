#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

namespace {

using Scaling = RopeConfig::Scaling;

// Everything that differs between architectures. The layer does not know the architecture: it sees which
// weights exist.
struct ArchitectureTraits {
  const char* gguf;             // general.architecture
  std::vector<const char*> hf;  // model_type
  NormKind norm = NormKind::kRms;
  FfnKind ffn = FfnKind::kSwiGlu;
  bool alibi = false;
  bool qkv_bias = false;
  bool all_biases = false;
  bool embedding_norm = false;
  bool gguf_interleaved =
      false;  // GGUF converters permute q and k for interleaved RoPE: Llama's, not Qwen2's
};

const std::vector<ArchitectureTraits>& Architectures() {
  static const std::vector<ArchitectureTraits> list = {
      // Llama 2, 3, 3.1, 3.2, Mistral and XGen
      {.gguf = "llama", .hf = {"llama", "mistral"}, .gguf_interleaved = true},
      // Qwen 1.5, 2, 2.5
      {.gguf = "qwen2", .hf = {"qwen2"}, .qkv_bias = true},
      {.gguf = "bloom",
       .hf = {"bloom"},
       .norm = NormKind::kLayer,
       .ffn = FfnKind::kGelu,
       .alibi = true,
       .qkv_bias = true,
       .all_biases = true,
       .embedding_norm = true},
  };
  return list;
}

void ApplyTraits(const ArchitectureTraits& traits, ModelConfig& c) {
  c.shape.architecture = traits.gguf;
  c.shape.gated_ffn = traits.ffn == FfnKind::kSwiGlu;
  c.shape.alibi = traits.alibi;
  c.norm = traits.norm;
  c.ffn = traits.ffn;
  c.qkv_bias = traits.qkv_bias;
  c.all_biases = traits.all_biases;
  c.embedding_norm = traits.embedding_norm;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& key, const std::string& why) {
  throw Error("[model] {}: {} {}", path, key, why);
}

// Looks up a value of the file by key; nullopt if absent. Both formats use this reader.
struct KeyReader {
  std::string path;
  std::function<std::optional<int64_t>(const std::string&)> integer;
  std::function<std::optional<double>(const std::string&)> number;

  int64_t Count(const std::string& key, int64_t limit, std::optional<int64_t> fallback = std::nullopt) const {
    const std::optional<int64_t> value = integer(key);
    if (!value && !fallback) Refuse(path, key, "is missing");
    const int64_t v = value.value_or(fallback.value_or(0));
    if (v < 1 || v > limit) Refuse(path, key, fmt::format("= {} is not from 1 to {}", v, limit));
    return v;
  }
  double Positive(const std::string& key, double fallback) const {
    const double v = number(key).value_or(fallback);
    if (!std::isfinite(v) || v <= 0) Refuse(path, key, fmt::format("= {} is not a positive number", v));
    return v;
  }
};

struct ShapeKeys {
  std::string layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, eps;
};

void ReadShape(const KeyReader& read, const ShapeKeys& keys, std::optional<int64_t> default_ffn,
               ModelConfig& c) {
  ModelShape& s = c.shape;
  s.layers = static_cast<int>(read.Count(keys.layers, limits::kMaxLayers));
  s.hidden = read.Count(keys.hidden, limits::kMaxHidden);
  s.heads = static_cast<int>(read.Count(keys.heads, limits::kMaxHeads));
  s.kv_heads = static_cast<int>(read.Count(keys.kv_heads, limits::kMaxHeads, s.heads));
  if (s.heads % s.kv_heads != 0) {
    Refuse(read.path, keys.kv_heads,
           fmt::format("= {} does not divide {} = {}", s.kv_heads, keys.heads, s.heads));
  }
  if (!read.integer(keys.head_dim) && s.hidden % s.heads != 0) {
    Refuse(read.path, keys.heads,
           fmt::format("= {} does not divide {} = {}", s.heads, keys.hidden, s.hidden));
  }
  s.head_dim = static_cast<int>(
      read.Count(keys.head_dim, limits::kMaxHeadDim, std::max<int64_t>(1, s.hidden / s.heads)));
  s.ffn = read.Count(keys.ffn, limits::kMaxHidden,
                     default_ffn ? std::optional(*default_ffn * s.hidden) : std::nullopt);
  c.context = read.Count(keys.context, limits::kMaxContext, 2048);
  c.norm_eps = read.Positive(keys.eps, 1e-5);
}

void CheckRope(const std::string& path, const std::string& key, ModelConfig& c) {
  if (c.shape.alibi) return;
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

void ReadGgufRope(const GgufMetadata& m, const KeyReader& read, const std::string& prefix, ModelConfig& c) {
  RopeConfig& r = c.rope;
  const std::string dims_key = prefix + "rope.dimension_count";
  r.dims = static_cast<int>(read.Count(dims_key, limits::kMaxHeadDim, c.shape.head_dim));
  r.base = read.Positive(prefix + "rope.freq_base", 10000);
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
}

void ReadHfRope(const nlohmann::json& config, const KeyReader& read, ModelConfig& c) {
  RopeConfig& r = c.rope;
  r.dims = c.shape.head_dim;
  r.base = read.Positive("rope_theta", 10000);
  CheckRope(read.path, "head_dim", c);
  // Newer files call it rope_parameters and keep theta inside.
  const std::string name = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const auto scaling = config.find(name);
  if (scaling == config.end() || scaling->is_null()) return;
  if (!scaling->is_object()) Refuse(read.path, name, "is not an object");
  const auto number = [&](const char* key, double fallback) {
    const auto it = scaling->find(key);
    const double v = it == scaling->end() || it->is_null() ? fallback
                     : it->is_number()                     ? it->get<double>()
                                                           : -1;
    if (!std::isfinite(v) || v < 0) Refuse(read.path, name + "." + key, "is not a positive number");
    return v;
  };
  const auto type = scaling->contains("rope_type") ? scaling->find("rope_type") : scaling->find("type");
  if (type == scaling->end() || !type->is_string()) Refuse(read.path, name + ".rope_type", "is not a string");
  r.scaling = ScalingByName(type->get<std::string>(), read.path, name + ".rope_type");
  r.base = number("rope_theta", r.base);
  r.factor = number("factor", 1);
  if (r.factor <= 0) Refuse(read.path, name + ".factor", "is not a positive number");
  const double original = number("original_max_position_embeddings", static_cast<double>(c.context));
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

}  // namespace

ModelConfig ConfigFromGguf(const GgufMetadata& m) {
  const std::optional<std::string> given = m.String("general.architecture");
  if (!given) Refuse(m.path(), "general.architecture", "is missing");
  const std::string& name = *given;
  const ArchitectureTraits* traits = nullptr;
  for (const ArchitectureTraits& t : Architectures()) {
    if (name == t.gguf) traits = &t;
  }
  if (traits == nullptr) {
    Refuse(m.path(), "general.architecture",
           fmt::format("= '{}' is not supported (llama, qwen2, bloom)", name));
  }
  ModelConfig c;
  ApplyTraits(*traits, c);
  c.shape.name = m.String("general.name").value_or("");
  const std::string p = name + ".";
  const KeyReader read{m.path(), [&](const std::string& k) { return m.Integer(k); },
                       [&](const std::string& k) { return m.Number(k); }};
  if (const int64_t experts = m.Integer(p + "expert_count").value_or(0); experts != 0) {
    const int64_t used = m.Integer(p + "expert_used_count").value_or(0);
    if (used > experts) {
      Refuse(m.path(), p + "expert_used_count",
             fmt::format("= {} is above expert_count = {}", used, experts));
    }
    Refuse(m.path(), p + "expert_count", fmt::format("= {}: mixtures of experts are not supported", experts));
  }
  ReadShape(
      read,
      {p + "block_count", p + "embedding_length", p + "feed_forward_length", p + "attention.head_count",
       p + "attention.head_count_kv", p + "attention.key_length", p + "vocab_size", p + "context_length",
       traits->norm == NormKind::kRms ? p + "attention.layer_norm_rms_epsilon"
                                      : p + "attention.layer_norm_epsilon"},
      std::nullopt, c);
  if (const auto window = m.Integer(p + "attention.sliding_window")) {
    if (*window < 0 || *window > limits::kMaxContext) {
      Refuse(m.path(), p + "attention.sliding_window", fmt::format("= {} is out of range", *window));
    }
    c.shape.window = static_cast<int32_t>(*window);
  }
  c.rope.interleaved = traits->gguf_interleaved;
  if (!c.shape.alibi) ReadGgufRope(m, read, p, c);
  return c;
}

namespace {

// Looks up a value of config.json by key. A null value, or an empty key, counts as absent.
struct HfKeys {
  const nlohmann::json& json;
  std::string path;

  bool Has(const std::string& key) const {
    return !key.empty() && json.contains(key) && !json[key].is_null();
  }
  bool Flag(const char* key, bool fallback) const {
    if (!Has(key)) return fallback;
    if (!json[key].is_boolean()) Refuse(path, key, "is not true or false");
    return json[key].get<bool>();
  }
  std::string Text(const char* key) const {
    if (!Has(key)) return "";
    if (!json[key].is_string()) Refuse(path, key, "is not a string");
    return json[key].get<std::string>();
  }
  std::optional<int64_t> Integer(const std::string& key) const {
    if (!Has(key)) return std::nullopt;
    if (!json[key].is_number_integer()) Refuse(path, key, "is not a whole number");
    if (json[key].is_number_unsigned() && json[key].get<uint64_t>() > INT64_MAX)
      Refuse(path, key, "is too large");
    return json[key].get<int64_t>();
  }
  std::optional<double> Number(const std::string& key) const {
    if (!Has(key)) return std::nullopt;
    if (!json[key].is_number()) Refuse(path, key, "is not a number");
    return json[key].get<double>();
  }
};

// BLOOM names its sizes after GPT-2; older files say num_attention_heads.
void ReadHfBloom(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  ReadShape(read,
            {keys.Has("n_layer") ? "n_layer" : "num_hidden_layers",
             keys.Has("hidden_size") ? "hidden_size" : "n_embed", "n_inner",
             keys.Has("n_head") ? "n_head" : "num_attention_heads", "", "", "vocab_size", "seq_length",
             "layer_norm_epsilon"},
            4, c);
  if (keys.Flag("apply_residual_connection_post_layernorm", false)) {
    Refuse(keys.path, "apply_residual_connection_post_layernorm", "= true is not supported");
  }
}

// Mistral applies its window to every layer. Qwen2 files have a window too, but most switch it off, and the
// others apply it to the layers from max_window_layers on.
void ReadHfWindow(const HfKeys& keys, const KeyReader& read, bool is_mistral, ModelConfig& c) {
  if (!keys.Has("sliding_window") || !keys.Flag("use_sliding_window", is_mistral)) return;
  const int64_t first =
      is_mistral ? 0 : keys.Integer("max_window_layers").value_or(28);  // transformers' default
  if (first >= c.shape.layers) return;
  if (first > 0)
    Refuse(keys.path, "max_window_layers",
           fmt::format("= {}: windows on some layers only are not supported", first));
  c.shape.window = static_cast<int32_t>(read.Count("sliding_window", limits::kMaxContext));
}

void ReadHfLlamaKin(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  ReadShape(read,
            {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
             "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps"},
            std::nullopt, c);
  ReadHfRope(keys.json, read, c);
  if (const std::string act = keys.Text("hidden_act"); !act.empty() && act != "silu") {
    Refuse(keys.path, "hidden_act", fmt::format("= '{}' is not supported (silu)", act));
  }
  c.qkv_bias = c.qkv_bias || keys.Flag("attention_bias", false);
  ReadHfWindow(keys, read, keys.Text("model_type") == "mistral", c);
}

}  // namespace

ModelConfig ConfigFromHf(const nlohmann::json& j, const std::string& folder) {
  const HfKeys keys{j, folder + "/config.json"};
  const std::string name = keys.Text("model_type");
  const ArchitectureTraits* traits = nullptr;
  for (const ArchitectureTraits& t : Architectures()) {
    for (const char* hf : t.hf) {
      if (name == hf) traits = &t;
    }
  }
  if (traits == nullptr) {
    Refuse(keys.path, "model_type",
           fmt::format("= '{}' is not supported (llama, mistral, qwen2, bloom)", name));
  }
  ModelConfig c;
  ApplyTraits(*traits, c);
  c.hf_names = true;
  const KeyReader read{keys.path, [&](const std::string& k) { return keys.Integer(k); },
                       [&](const std::string& k) { return keys.Number(k); }};
  const bool is_bloom = traits->alibi;
  if (is_bloom) {
    ReadHfBloom(keys, read, c);
  } else {
    ReadHfLlamaKin(keys, read, c);
  }
  c.shape.vocab = read.Count("vocab_size", limits::kMaxVocab);
  c.tied_head = keys.Flag("tie_word_embeddings", is_bloom);
  return c;
}

std::vector<float> AlibiSlopes(int heads) {
  // Press et al. 2022 (ALiBi): a geometric sequence that starts at 2^(-8/n). If n is not a power of two: the
  // sequence of the next lower power, then every second element of that of the next higher power.
  const auto sequence = [](int n, int i) { return std::pow(2.0, -8.0 * (i + 1) / n); };
  int power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) {
    slopes.push_back(
        static_cast<float>(h < power ? sequence(power, h) : sequence(2 * power, 2 * (h - power))));
  }
  return slopes;
}

}  // namespace coppice
