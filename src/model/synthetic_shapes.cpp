// The shapes that a synthetic model may have.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>

#include "base/field_error.h"
#include "model/synthetic.h"

namespace coppice {

namespace {

struct KnownShape {
  const char* name;
  const char* architecture;
  int layers;
  int64_t hidden, ffn;
  int heads, kv_heads, head_dim;
  int64_t vocab, context;
  double rope_base;
  bool tied;
  int32_t window = 0;
  MixtureShape mixture = {};  // of every layer, instead of the FFN of width `ffn`
  int state_heads = 0;        // of values, in three of four layers, which do not attend
};

// From the models' published config.json files.
constexpr KnownShape kShapes[] = {
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 10000, false},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000, false},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000, true},
    {"mistral-7b", "llama", 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1000000, false},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1000000, true},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1000000, true},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1000000, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1000000, false},
    {"qwen3-30b-a3b",
     "qwen3moe",
     48,
     2048,
     6144,
     32,
     4,
     128,
     151936,
     40960,
     1000000,
     false,
     0,
     {.experts = 128, .used = 8, .width = 768}},
    {"gpt-oss-20b",
     "gpt-oss",
     24,
     2880,
     2880,
     64,
     8,
     64,
     201088,
     131072,
     150000,
     false,
     128,
     {.experts = 32, .used = 4, .width = 2880}},
    {"qwen3.5-4b", "qwen35", 32, 2560, 9216, 16, 4, 256, 248320, 262144, 1e7, true, 0, {}, 32},
    {"qwen3.6-35b-a3b",
     "qwen35moe",
     40,
     2048,
     0,
     16,
     2,
     256,
     248320,
     262144,
     1e7,
     false,
     0,
     {.experts = 256, .used = 8, .width = 512, .shared_width = 512, .shared_gate = true},
     32},
    {"smollm3-3b", "smollm3", 36, 2048, 11008, 16, 4, 128, 128256, 65536, 5000000, true},
    {"bloom-7b", "bloom", 30, 4096, 16384, 32, 32, 128, 250880, 2048, 0, true},
    {"gemma-3-270m", "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, 1000000, true, 512},
    {"gemma-3-1b", "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1000000, true, 512},
    {"gemma4-e2b", "gemma4", 35, 1536, 6144, 8, 1, 256, 262144, 131072, 1000000, true, 512},
    {"gemma4-e4b", "gemma4", 42, 2560, 10240, 8, 2, 256, 262144, 131072, 1000000, true, 512},
    {"muse-glimmer-30b", "muse-glimmer", 52, 6656, 19968, 32, 2, 128, 202048, 131072, 500000, false, 2048},
    {"tiny", "llama", 4, 64, 192, 8, 2, 8, 320, 4096, 10000,
     true},  // not a real model: for tests and first steps
};

const std::map<std::string, DType>& SyntheticTypes() {
  static const std::map<std::string, DType> types = {{"bf16", DType::kBF16}, {"f32", DType::kF32},
                                                     {"f16", DType::kF16},   {"q8_0", DType::kQ8_0},
                                                     {"q4_0", DType::kQ4_0}, {"mxfp4", DType::kMXFP4}};
  return types;
}

// Three of four layers have a gated delta rule (Qwen3.5 to 3.8).
void SetStates(int value_heads, ModelConfig& c) {
  c.norm_eps = 1e-6;
  c.head_norms = true;
  c.gate_in_query = true;
  c.gguf_ffn_norm = "post_attention_norm";
  c.ropes.front().dims = c.shape.layer(0).head_dim / 4;
  constexpr int kKeyHeads = 16;
  constexpr int kDim = 128;
  for (int l = 0; l < c.shape.layer_count(); ++l) {
    LayerShape& layer = c.shape.layers[static_cast<size_t>(l)];
    layer.output_gate = true;
    if (l % 4 == 3) continue;
    layer = {.rope = kNoRope,
             .ffn = layer.ffn,
             .mixture = layer.mixture,
             .mixer = MixerKind::kGatedDelta,
             .recurrent = {.taps = 4,
                           .channels = int64_t{2 * kKeyHeads + value_heads} * kDim,
                           .key_heads = kKeyHeads,
                           .value_heads = value_heads,
                           .key_dim = kDim,
                           .value_dim = kDim,
                           .tiled = true,
                           .norm_groups = value_heads}};
  }
}

ModelConfig ConfigOf(const KnownShape& k) {
  ModelConfig c;
  const std::string_view architecture = k.architecture;
  const bool bloom = architecture == "bloom";
  const bool gemma = architecture == "gemma3";
  const bool smollm3 = architecture == "smollm3";
  const bool gpt_oss = architecture == "gpt-oss";
  const bool muse = architecture == "muse-glimmer";
  c.shape = {.architecture = k.architecture,
             .name = k.name,
             .hidden = k.hidden,
             .vocab = k.vocab,
             .gated_ffn = !bloom,
             .alibi = bloom,
             .post_norms = gemma || muse};
  for (int l = 0; l < k.layers; ++l) {
    const bool windowed = gpt_oss ? l % 2 == 0 : muse ? l % 4 != 3 : !gemma || l % 6 != 5;
    const bool unturned = bloom || ((smollm3 || muse) && l % 4 == 3);
    c.shape.layers.push_back({.heads = k.heads,
                              .kv_heads = k.kv_heads,
                              .head_dim = k.head_dim,
                              .window = windowed ? k.window : 0,
                              .rope = unturned                      ? kNoRope
                                      : (gemma || muse) && windowed ? 1
                                                                    : 0,
                              .ffn = k.mixture.experts > 0 ? 0 : k.ffn,
                              .output_gate = muse,
                              .mixture = k.mixture});
  }
  c.context = k.context;
  c.norm = bloom ? NormKind::kLayer : NormKind::kRms;
  c.ffn = bloom ? FfnKind::kGelu : gemma ? FfnKind::kGeGlu : gpt_oss ? FfnKind::kSwiGluOai : FfnKind::kSwiGlu;
  const bool interleaved = architecture == "llama" || smollm3 || muse;
  if (!bloom) c.ropes = {{.dims = k.head_dim, .base = k.rope_base, .interleaved = interleaved}};
  c.qkv_bias = bloom || gpt_oss || architecture == "qwen2";
  if (gpt_oss) {
    c.sinks = true;
    c.gguf_ffn_norm = "post_attention_norm";
    c.router.kind = RouterKind::kTopKSoftmax;
    RopeConfig& rope = c.ropes.front();
    rope.scaling = RopeConfig::Scaling::kYarn;
    rope.factor = 32;
    rope.original_context = 4096;
  }
  if (gemma) {
    c.ropes.push_back({.dims = k.head_dim, .base = 10000});
    c.embedding_scale = std::sqrt(static_cast<double>(k.hidden));
  }
  if (muse) {
    c.ropes.push_back(c.ropes.front());
    c.embedding_norm = EmbeddingNorm::kWeightless;
    c.post_norm_eps = 1e-8;
    c.logit_scale = 1 / std::sqrt(static_cast<double>(k.hidden) / 256);
    c.logit_cap = 20;
  }
  c.head_norms = gemma || architecture == "qwen3" || architecture == "qwen3moe";
  if (c.head_norms || smollm3) c.norm_eps = 1e-6;
  if (muse) c.head_norms = true;
  c.all_biases = bloom;
  if (bloom) c.embedding_norm = EmbeddingNorm::kStored;
  c.tied_head = k.tied;
  if (k.state_heads > 0) SetStates(k.state_heads, c);
  return c;
}

// What the layers of Gemma 4 E2B and E4B differ in.
struct Gemma4Layers {
  int full_every;  // so many layers one has no window, and heads of twice the size
  int shared;      // of all layers, the last ones, which attend the keys of earlier ones
  int64_t shared_ffn;
};

// Of a model with fewer layers, the same share of them attends others' keys.
void SetGemma4(const Gemma4Layers& kind, int layers, ModelConfig& c) {
  ModelShape& s = c.shape;
  const int own = layers - layers * kind.shared / s.layer_count();
  if (own < kind.full_every) {
    throw FieldError("shape", " {} needs {} layers or more: of fewer, none without a window has keys", s.name,
                     kind.full_every * s.layer_count() / (s.layer_count() - kind.shared) + 1);
  }
  c.ffn = FfnKind::kGeGlu;
  c.gemma4_layers = true;
  c.attention_scale = 1;
  c.logit_cap = 30;
  c.norm_eps = 1e-6;
  c.head_norms = true;
  c.window_ropes = true;
  c.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.post_norms = true;
  s.layer_embedding = 256;
  const LayerShape first = s.layer(0);
  c.ropes = {{.dims = 2 * first.head_dim, .base = c.ropes.front().base}, {.dims = first.head_dim}};
  s.layers.clear();
  for (int l = 0; l < layers; ++l) {
    LayerShape layer = first;
    const bool full = (l + 1) % kind.full_every == 0;
    if (full) {
      layer.window = 0;
      layer.head_dim *= 2;
    }
    layer.rope = full ? 0 : 1;
    if (l < own) {
      s.layers.push_back(layer);
      continue;
    }
    layer.ffn = kind.shared_ffn;
    layer.keys_of = own - 1;
    while ((s.layer(layer.keys_of).window == 0) != full) --layer.keys_of;
    s.tail.push_back(layer);
  }
}

size_t FewerLayers(const std::string& layers, int most, const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(layers.data(), layers.data() + layers.size(), count);
  if (error != std::errc() || end != layers.data() + layers.size() || count < 1 || count > most)
    throw FieldError("shape", " {}: layers '{}' are not from 1 to {}", text, layers, most);
  return static_cast<size_t>(count);
}

}  // namespace

SyntheticModel ParseShape(const std::string& text) {
  const size_t colon = text.find(':');
  SyntheticModel model;
  model.shape_name = text.substr(0, colon);
  const size_t slash = model.shape_name.find('/');
  const std::string layers = slash == std::string::npos ? "" : model.shape_name.substr(slash + 1);
  const std::string name = model.shape_name.substr(0, slash);
  std::string type = colon == std::string::npos ? "bf16" : text.substr(colon + 1);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto known_type = SyntheticTypes().find(type);
  if (known_type == SyntheticTypes().end()) {
    throw FieldError("shape", " {}: no type '{}'; there are bf16, f32, f16, q8_0, q4_0, mxfp4", text, type);
  }
  model.type = known_type->second;
  std::string names;
  for (const KnownShape& k : kShapes) {
    if (name == k.name) {
      model.config = ConfigOf(k);
      const size_t count =
          slash == std::string::npos ? static_cast<size_t>(k.layers) : FewerLayers(layers, k.layers, text);
      if (name == "gemma4-e2b") {
        SetGemma4({5, 20, 2 * k.ffn}, static_cast<int>(count), model.config);
      } else if (name == "gemma4-e4b") {
        SetGemma4({6, 18, k.ffn}, static_cast<int>(count), model.config);
      } else {
        model.config.shape.layers.resize(count);
        if (!model.config.shape.FirstAttending().attends())
          throw FieldError("shape", " {} needs 4 layers or more: of fewer, none attends", text);
      }
      return model;
    }
    names += (names.empty() ? "" : ", ") + std::string(k.name);
  }
  throw FieldError("shape", " {}: no shape '{}'; there are {}", text, model.shape_name, names);
}

}  // namespace coppice
