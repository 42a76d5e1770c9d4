#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/limits.h"
#include "model/config_keys.h"
#include "model/config_rope.h"

namespace coppice {

namespace {

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
  bool head_norms = false;
  bool post_norms = false;
  bool scaled_embedding = false;  // by sqrt(hidden)
  double hf_norm_offset = 0;      // Hugging Face's files store norm weights without this
  bool tied_head = false;         // unless config.json says otherwise
  PositionTraits positions = {};
};

const std::vector<ArchitectureTraits>& Architectures() {
  static const std::vector<ArchitectureTraits> list = {
      // Llama 2, 3, 3.1, 3.2, Mistral and XGen
      {.gguf = "llama", .hf = {"llama", "mistral"}, .positions = {.gguf_interleaved = true}},
      // Qwen 1.5, 2, 2.5
      {.gguf = "qwen2", .hf = {"qwen2"}, .qkv_bias = true},
      {.gguf = "bloom",
       .hf = {"bloom"},
       .norm = NormKind::kLayer,
       .ffn = FfnKind::kGelu,
       .alibi = true,
       .qkv_bias = true,
       .all_biases = true,
       .embedding_norm = true,
       .tied_head = true},
      {.gguf = "gemma3",
       .hf = {"gemma3_text"},
       .ffn = FfnKind::kGeGlu,
       .head_norms = true,
       .post_norms = true,
       .scaled_embedding = true,
       .hf_norm_offset = 1,
       .tied_head = true,
       .positions = {.rope_base = 1e6, .window_rope_base = 1e4, .global_every = 6}},
  };
  return list;
}

void ApplyTraits(const ArchitectureTraits& traits, ModelConfig& c) {
  c.shape.architecture = traits.gguf;
  c.shape.gated_ffn = traits.ffn != FfnKind::kGelu;
  c.shape.alibi = traits.alibi;
  c.shape.post_norms = traits.post_norms;
  c.norm = traits.norm;
  c.ffn = traits.ffn;
  c.qkv_bias = traits.qkv_bias;
  c.all_biases = traits.all_biases;
  c.embedding_norm = traits.embedding_norm;
  c.head_norms = traits.head_norms;
}

// The parts that follow from the shape.
void ApplyShape(const ArchitectureTraits& traits, ModelConfig& c) {
  if (traits.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<double>(c.shape.hidden));
}

// What no model of the supported architectures uses, and the layer does not compute.
void RefuseSoftcaps(const KeyReader& read, const std::string& prefix) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const double cap = read.number(prefix + key).value_or(0);
    if (cap != 0) Refuse(read.path, prefix + key, fmt::format("= {} is not supported", cap));
  }
}

struct ShapeKeys {
  std::string layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, eps;
};

void ReadShape(const KeyReader& read, const ShapeKeys& keys, std::optional<int64_t> default_ffn,
               ModelConfig& c) {
  ModelShape& s = c.shape;
  const auto count = static_cast<int>(read.Count(keys.layers, limits::kMaxLayers));
  s.hidden = read.Count(keys.hidden, limits::kMaxHidden);
  const std::vector<int64_t> heads = read.Counts(keys.heads, limits::kMaxHeads, count);
  const std::vector<int64_t> kv_heads = read.Counts(keys.kv_heads, limits::kMaxHeads, count, heads);
  std::vector<int64_t> even;  // the heads share the hidden size
  for (const int64_t h : heads) even.push_back(std::max<int64_t>(1, s.hidden / h));
  const bool has_head_dim = read.Has(keys.head_dim);
  const std::vector<int64_t> head_dim = read.Counts(keys.head_dim, limits::kMaxHeadDim, count, even);
  std::vector<int64_t> usual_ffn;
  if (default_ffn) usual_ffn.assign(heads.size(), *default_ffn * s.hidden);
  const std::vector<int64_t> ffn = read.Counts(keys.ffn, limits::kMaxHidden, count, usual_ffn);
  for (size_t l = 0; l < heads.size(); ++l) {
    if (heads[l] % kv_heads[l] != 0) {
      Refuse(read.path, keys.kv_heads,
             fmt::format("= {} does not divide {} = {}", kv_heads[l], keys.heads, heads[l]));
    }
    if (!has_head_dim && s.hidden % heads[l] != 0) {
      Refuse(read.path, keys.heads,
             fmt::format("= {} does not divide {} = {}", heads[l], keys.hidden, s.hidden));
    }
    s.layers.push_back({.heads = static_cast<int>(heads[l]),
                        .kv_heads = static_cast<int>(kv_heads[l]),
                        .head_dim = static_cast<int>(head_dim[l]),
                        .rope = s.alibi ? kNoRope : 0,
                        .ffn = ffn[l]});
  }
  c.context = read.Count(keys.context, limits::kMaxContext, 2048);
  c.norm_eps = read.Positive(keys.eps, 1e-5);
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
           fmt::format("= '{}' is not supported (llama, qwen2, bloom, gemma3)", name));
  }
  ModelConfig c;
  ApplyTraits(*traits, c);
  c.shape.name = m.String("general.name").value_or("");
  const std::string p = name + ".";
  const KeyReader read{m.path(), [&](const std::string& k) { return m.Integer(k); },
                       [&](const std::string& k) { return m.Number(k); },
                       [&](const std::string& k) { return m.IsArray(k) ? m.Integers(k) : std::nullopt; }};
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
  ReadGgufPositions(m, read, p, traits->positions, c);
  RefuseSoftcaps(read, p);
  ApplyShape(*traits, c);
  if (const std::string key = p + "attention.scale"; read.number(key)) {
    c.attention_scale = read.Positive(key, 1);
  } else if (name == "gemma3" && c.shape.layer_count() == 62) {
    // The 27b model alone divides by sqrt(hidden / heads), and only its depth tells, as in llama.cpp.
    c.attention_scale = 1 / std::sqrt(static_cast<double>(c.shape.hidden) / c.shape.layer(0).heads);
  }
  return c;
}

namespace {

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

void ReadHfLlamaKin(const HfKeys& keys, const KeyReader& read, const ArchitectureTraits& traits,
                    ModelConfig& c) {
  ReadShape(read,
            {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
             "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps"},
            std::nullopt, c);
  ReadHfPositions(keys, read, traits.positions, c);
  const bool gelu = traits.ffn == FfnKind::kGeGlu;
  const char* key = gelu ? "hidden_activation" : "hidden_act";
  const char* supported = gelu ? "gelu_pytorch_tanh" : "silu";
  if (const std::string act = keys.Text(key); !act.empty() && act != supported) {
    Refuse(keys.path, key, fmt::format("= '{}' is not supported ({})", act, supported));
  }
  c.qkv_bias = c.qkv_bias || keys.Flag("attention_bias", false);
  if (keys.Flag("use_bidirectional_attention", false))
    Refuse(keys.path, "use_bidirectional_attention", "= true is not supported");
  RefuseSoftcaps(read, "");
  if (read.number("query_pre_attn_scalar"))
    c.attention_scale = 1 / std::sqrt(read.Positive("query_pre_attn_scalar", 1));
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
           fmt::format("= '{}' is not supported (llama, mistral, qwen2, bloom, gemma3_text)", name));
  }
  ModelConfig c;
  ApplyTraits(*traits, c);
  c.hf_names = true;
  const KeyReader read{keys.path, [&](const std::string& k) { return keys.Integer(k); },
                       [&](const std::string& k) { return keys.Number(k); },
                       [&](const std::string& k) { return keys.Integers(k); }};
  const bool is_bloom = traits->alibi;
  if (is_bloom) {
    ReadHfBloom(keys, read, c);
  } else {
    ReadHfLlamaKin(keys, read, *traits, c);
  }
  c.shape.vocab = read.Count("vocab_size", limits::kMaxVocab);
  c.tied_head = keys.Flag("tie_word_embeddings", traits->tied_head);
  c.norm_offset = traits->hf_norm_offset;
  ApplyShape(*traits, c);
  return c;
}

float AttentionScale(const ModelConfig& c, const LayerShape& layer) {
  if (c.attention_scale > 0) return static_cast<float>(c.attention_scale);
  return 1 / std::sqrt(static_cast<float>(layer.head_dim));
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
