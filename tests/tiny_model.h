// A small random model in memory: a real architecture in a size that a test can run in milliseconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/tensor_store.h"
#include "model/transformer.h"
#include "tensor/tensor.h"

namespace coppice {

// SplitMix64: the same numbers with every standard library.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float Uniform() { return static_cast<float>(static_cast<double>(Next() >> 11) * 0x1p-52 - 1); }  // [-1, 1)
  int32_t Below(int32_t limit) { return static_cast<int32_t>(Next() % static_cast<uint64_t>(limit)); }

 private:
  uint64_t state_;
};

// fp32 tensors under GGUF's names, which a test may change before the model is made.
class TinyStore final : public TensorStore {
 public:
  const std::string& path() const override { return path_; }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const StoredTensor* Find(std::string_view name) const override {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &tensors_[it->second];
  }

  // Uniform with deviation `scale`, around `mean`.
  void Add(const std::string& name, std::vector<int64_t> shape, float scale, float mean, TestRandom& random) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    Tensor tensor(DType::kF32, rows, shape.back());
    for (int64_t r = 0; r < rows; ++r) {
      for (float& x : tensor.mutable_view().Row<float>(r))
        x = mean + scale * std::sqrt(3.0f) * random.Uniform();
    }
    owned_.push_back(std::move(tensor));
    index_[name] = tensors_.size();
    tensors_.push_back({name, std::move(shape), owned_.back().view()});
  }
  MutableTensorView Mutable(const std::string& name) {
    const auto it = index_.find(name);
    COPPICE_CHECK(it != index_.end());
    return owned_[it->second].mutable_view();
  }

 private:
  std::string path_ = "tiny model";
  std::vector<Tensor> owned_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

struct TinyModel {
  ModelConfig config;
  std::shared_ptr<TinyStore> store;

  Transformer Make() const {
    ModelConfig copy = config;
    std::shared_ptr<const Weights> weights = Weights::Load(store, copy);
    return {copy, weights};
  }
};

struct TinyOptions {
  std::string architecture = "llama";  // or another of TinyArchitectures
  int layers = 6;
  bool interleaved = true;  // llama and qwen2: the pairing of RoPE
  uint64_t seed = 1;
  int head_dim = 8;
  int kv_heads = 2;  // bloom: as many as heads
};

// The architectures of tiny models that the backend computes (Backend::CheckNeeds). The reference took four
// times as long as the CPU's kernels over all of them, and golden tests run every architecture on it: here it
// gets the plainest and the richest.
inline std::vector<std::string> TinyArchitectures(const Backend& be) {
  if (be.name() == "gpu") return {"llama", "qwen2", "bloom"};
  if (be.name() == "reference") return {"llama", "gemma4"};
  return {"llama", "bloom", "gemma4", "smollm3", "olmo2", "gpt-oss"};
}

// Every third layer keeps its FFN; every other mixture has a shared expert.
inline void AddTinyMixtures(ModelConfig& c) {
  for (size_t l = 0; l < c.shape.layers.size(); ++l) {
    if (l % 3 == 1) continue;
    const bool shared = l % 2 == 0;
    c.shape.layers[l].ffn = 0;
    c.shape.layers[l].mixture = {
        .experts = 6, .used = 2, .width = 40, .shared_width = shared ? 24 : 0, .shared_gate = shared};
  }
}

// Every second layer has a mixture beside its FFN; layers without a window have wider heads, of which a part
// turns; two layers attend the keys of others.
inline void AddTinyGemma4(ModelConfig& c) {
  c.gemma4_layers = true;
  c.attention_scale = 1;
  c.logit_cap = 5;
  c.shape.layer_embedding = 16;
  RopeConfig& full = c.ropes.front();
  full.dims *= 2;
  full.scaling = RopeConfig::Scaling::kProportional;
  full.rotating = 0.5;
  int last[2] = {-1, -1};  // with a window, and without
  for (int l = 0; l < c.shape.layer_count(); ++l) {
    LayerShape& layer = c.shape.layers[static_cast<size_t>(l)];
    last[layer.window > 0 ? 0 : 1] = l;
    if (layer.window == 0) layer.head_dim *= 2;
    if (l % 2 == 0) continue;
    layer.mixture = {.experts = 6, .used = 2, .width = 40, .shared_width = layer.ffn};
    layer.ffn = 0;
  }
  for (const int of : last) {
    if (of < 0) continue;
    LayerShape layer = c.shape.layer(of);
    layer.keys_of = of;
    layer.ffn = 64;
    layer.mixture = {};
    c.shape.tail.push_back(layer);
  }
}

inline ModelConfig TinyConfig(const TinyOptions& options) {
  ModelConfig c;
  const bool bloom = options.architecture == "bloom";
  const bool gemma4 = options.architecture == "gemma4";
  const bool gemma = options.architecture == "gemma3" || gemma4;
  const bool olmo = options.architecture == "olmo2";
  const bool gpt_oss = options.architecture == "gpt-oss";
  const bool smollm = options.architecture == "smollm3";
  c.shape = {.architecture = options.architecture,
             .name = "tiny",
             .hidden = 64,
             .vocab = 50,
             .gated_ffn = !bloom,
             .alibi = bloom,
             .post_norms = gemma || olmo};
  for (int l = 0; l < options.layers; ++l) {
    const bool windowed = (gemma || olmo || gpt_oss) && l % 3 != 2;
    const bool unturned = bloom || (smollm && l % 4 == 3);
    c.shape.layers.push_back({.heads = 8,
                              .kv_heads = bloom ? 8 : options.kv_heads,
                              .head_dim = options.head_dim,
                              .window = windowed ? 1000 : 0,  // longer than most prompts of tests
                              .rope = unturned               ? kNoRope
                                      : windowed && !gpt_oss ? 1
                                                             : 0,
                              .ffn = 96,
                              .output_gate = smollm});
  }
  c.context = 4096;
  c.norm = bloom ? NormKind::kLayer : NormKind::kRms;
  c.ffn = bloom ? FfnKind::kGelu : gemma ? FfnKind::kGeGlu : gpt_oss ? FfnKind::kSwiGluOai : FfnKind::kSwiGlu;
  if (!bloom) c.ropes = {{.dims = options.head_dim, .interleaved = options.interleaved}};
  c.qkv_bias = bloom || gpt_oss || options.architecture == "qwen2";
  c.sinks = gpt_oss;
  c.head_norms = gemma || olmo;
  c.whole_norms = olmo;
  c.pre_norms = !olmo;
  if (gemma || olmo)
    c.ropes.push_back({.dims = options.head_dim, .base = 100, .interleaved = options.interleaved});
  if (gemma) c.embedding_scale = 8;
  if (gpt_oss || options.architecture == "qwen3moe") AddTinyMixtures(c);
  if (gemma4) AddTinyGemma4(c);
  if (olmo) c.query_temperature = {.beta = 0.3, .context = 40};  // Ministral's, which no OLMo has
  c.all_biases = bloom;
  if (bloom) c.embedding_norm = EmbeddingNorm::kStored;
  if (smollm) {  // and what Muse Glimmer has beside layers without RoPE
    c.embedding_norm = EmbeddingNorm::kWeightless;
    c.logit_scale = 0.8;
    c.logit_cap = 5;
  }
  return c;
}

inline void AddTinyMixture(int64_t hidden, const MixtureShape& m, const std::string& p, TinyStore& store,
                           TestRandom& random) {
  const auto scale = [](int64_t inputs) { return 1 / std::sqrt(static_cast<float>(inputs)); };
  store.Add(p + "ffn_gate_inp.weight", {m.experts, hidden}, 3 * scale(hidden), 0, random);
  store.Add(p + "ffn_gate_exps.weight", {m.experts, m.width, hidden}, scale(hidden), 0, random);
  store.Add(p + "ffn_up_exps.weight", {m.experts, m.width, hidden}, scale(hidden), 0, random);
  store.Add(p + "ffn_down_exps.weight", {m.experts, hidden, m.width}, scale(m.width), 0, random);
  if (m.shared_width == 0) return;
  store.Add(p + "ffn_gate_shexp.weight", {m.shared_width, hidden}, scale(hidden), 0, random);
  store.Add(p + "ffn_up_shexp.weight", {m.shared_width, hidden}, scale(hidden), 0, random);
  store.Add(p + "ffn_down_shexp.weight", {hidden, m.shared_width}, scale(m.shared_width), 0, random);
  store.Add(p + "ffn_gate_inp_shexp.weight", {hidden}, scale(hidden), 0, random);
}

inline void AddTinyExpertBiases(int64_t hidden, const MixtureShape& m, const std::string& p, TinyStore& store,
                                TestRandom& random) {
  store.Add(p + "ffn_gate_inp.bias", {m.experts}, 0.1f, 0, random);
  store.Add(p + "ffn_gate_exps.bias", {m.experts, m.width}, 0.1f, 0, random);
  store.Add(p + "ffn_up_exps.bias", {m.experts, m.width}, 0.1f, 0, random);
  store.Add(p + "ffn_down_exps.bias", {m.experts, hidden}, 0.1f, 0, random);
}

// The experts of a layer that has an FFN beside them, which is its `shared_width`.
inline void AddTinyGemma4Mixture(int64_t hidden, const MixtureShape& m, const std::string& p,
                                 TinyStore& store, TestRandom& random) {
  AddTinyMixture(hidden, {.experts = m.experts, .used = m.used, .width = m.width}, p, store, random);
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    store.Add(p + name + ".weight", {rows, cols}, 1 / std::sqrt(static_cast<float>(cols)), 0, random);
  };
  matrix("ffn_gate", m.shared_width, hidden);
  matrix("ffn_up", m.shared_width, hidden);
  matrix("ffn_down", hidden, m.shared_width);
  store.Add(p + "ffn_gate_inp.scale", {hidden}, 1, 8, random);
  store.Add(p + "ffn_down_exps.scale", {m.experts}, 0.1f, 1, random);
  for (const char* name : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
    store.Add(p + name + ".weight", {hidden}, 0.1f, 1, random);
}

inline void AddTinyLayer(const ModelShape& s, int l, TinyStore& store, TestRandom& random) {
  const std::string p = "blk." + std::to_string(l) + ".";
  const LayerShape& layer = s.AnyLayer(l);
  const bool own_keys = layer.keys_of == kOwnKeys;
  const int64_t q = layer.query_width();
  const int64_t kv = layer.key_width();
  const bool bloom = s.architecture == "bloom";
  const auto linear = [&](const std::string& name, int64_t rows, int64_t cols, bool bias) {
    store.Add(p + name + ".weight", {rows, cols}, 1 / std::sqrt(static_cast<float>(cols)), 0, random);
    if (bias) store.Add(p + name + ".bias", {rows}, 0.1f, 0, random);
  };
  const auto norm = [&](const std::string& name, int64_t size) {
    store.Add(p + name + ".weight", {size}, 0.1f, 1, random);
    if (bloom) store.Add(p + name + ".bias", {s.hidden}, 0.1f, 0, random);
  };
  const bool gpt_oss = s.architecture == "gpt-oss";
  const bool biased = bloom || gpt_oss || s.architecture == "qwen2";
  const bool gemma4 = s.architecture == "gemma4";
  const bool gemma = s.architecture == "gemma3" || gemma4;
  const bool olmo = s.architecture == "olmo2";
  if (!olmo) norm("attn_norm", s.hidden);
  if (bloom) {
    linear("attn_qkv", q + 2 * kv, s.hidden, true);
  } else {
    linear("attn_q", q, s.hidden, biased);
    if (own_keys) linear("attn_k", kv, s.hidden, biased);
    if (own_keys && !(gemma4 && l == 2)) linear("attn_v", kv, s.hidden, biased);
  }
  linear("attn_output", s.hidden, q, bloom || gpt_oss);
  if (layer.output_gate) linear("attn_gate", q, s.hidden, false);
  if (gpt_oss) store.Add(p + "attn_sinks.weight", {layer.heads}, 1, 0, random);
  if (!olmo) norm("ffn_norm", s.hidden);
  if (gemma || olmo) {
    norm("attn_q_norm", olmo ? q : layer.head_dim);
    if (own_keys) norm("attn_k_norm", olmo ? kv : layer.head_dim);
    for (const char* name : {"post_attention_norm", "post_ffw_norm"}) norm(name, s.hidden);
  }
  if (gemma4) {
    store.Add(p + "layer_output_scale.weight", {1}, 0.1f, 0.9f, random);
    linear("inp_gate", s.layer_embedding, s.hidden, false);
    linear("proj", s.hidden, s.layer_embedding, false);
    norm("post_norm", s.hidden);
  }
  if (layer.mixture.experts > 0 && gemma4)
    return AddTinyGemma4Mixture(s.hidden, layer.mixture, p, store, random);
  if (layer.mixture.experts > 0) {
    AddTinyMixture(s.hidden, layer.mixture, p, store, random);
    if (gpt_oss) AddTinyExpertBiases(s.hidden, layer.mixture, p, store, random);
    return;
  }
  if (layer.ffn == 0) return;
  if (s.gated_ffn) linear("ffn_gate", layer.ffn, s.hidden, false);
  linear("ffn_up", layer.ffn, s.hidden, bloom);
  linear("ffn_down", s.hidden, layer.ffn, bloom);
}

inline TinyModel MakeTiny(ModelConfig config, uint64_t seed) {
  TinyModel model{std::move(config), std::make_shared<TinyStore>()};
  const ModelShape& s = model.config.shape;
  const bool bloom = s.architecture == "bloom";
  TestRandom random(seed);
  TinyStore& store = *model.store;
  store.Add("token_embd.weight", {s.vocab, s.hidden}, 0.5f, 0, random);
  if (bloom) {
    store.Add("token_embd_norm.weight", {s.hidden}, 0.1f, 1, random);
    store.Add("token_embd_norm.bias", {s.hidden}, 0.1f, 0, random);
  }
  const auto layers = static_cast<int>(s.AllLayers().size());
  if (s.layer_embedding > 0) {
    const int64_t width = layers * s.layer_embedding;
    store.Add("per_layer_token_embd.weight", {s.vocab, width}, 0.5f, 0, random);
    store.Add("per_layer_model_proj.weight", {width, s.hidden}, 1, 0, random);
    store.Add("per_layer_proj_norm.weight", {s.layer_embedding}, 0.1f, 1, random);
  }
  for (int l = 0; l < layers; ++l) AddTinyLayer(s, l, store, random);
  store.Add("output_norm.weight", {s.hidden}, 0.1f, 1, random);
  if (bloom) store.Add("output_norm.bias", {s.hidden}, 0.1f, 0, random);
  store.Add("output.weight", {s.vocab, s.hidden}, 0.5f / std::sqrt(64.0f), 0, random);
  return model;
}

inline TinyModel MakeTiny(const TinyOptions& options) { return MakeTiny(TinyConfig(options), options.seed); }

// Ids from kFirstNeedle on are needles: every query of every head looks at them, the more the higher the id,
// in every layer. The attention of random weights is near uniform and its scores nearly tie; these are far
// apart.
inline constexpr int32_t kFirstNeedle = 42;

inline TinyModel MakeNeedle(const TinyOptions& options) {
  TinyModel model = MakeTiny(options);
  // The last dimension of a head turns slowest, in either pairing; this base all but stops it.
  for (RopeConfig& rope : model.config.ropes) rope.base = 1e8;
  const ModelShape& s = model.config.shape;
  TinyStore& store = *model.store;
  const MutableTensorView embedding = store.Mutable("token_embd.weight");
  for (int64_t id = 0; id < s.vocab; ++id) {  // coordinate 0: a constant; coordinate 1: how much of a needle
    embedding.Row<float>(id)[0] = 3;
    embedding.Row<float>(id)[1] = id < kFirstNeedle ? 0 : 2 + 0.25f * static_cast<float>(id - kFirstNeedle);
  }
  for (int l = 0; l < s.layer_count(); ++l) {
    const int64_t c = s.layer(l).head_dim;
    const std::string p = "blk." + std::to_string(l) + ".";
    for (const auto& [name, coordinate] : {std::pair{"attn_q.weight", 0}, std::pair{"attn_k.weight", 1}}) {
      const MutableTensorView w = store.Mutable(p + name);
      for (int64_t r = 0; r < w.rows; ++r) {
        const std::span<float> row = w.Row<float>(r);
        const bool carries = r % c == c - 1;
        for (float& x : row) x *= carries ? 0.0f : 0.3f;
        if (carries) row[static_cast<size_t>(coordinate)] = 2;
      }
    }
    // No layer writes to the two coordinates, and none writes so much that the norms drown them.
    for (const char* name : {"attn_output", "ffn_down", "ffn_down_exps", "ffn_down_shexp"}) {
      if (store.Find(p + name + ".weight") == nullptr) continue;
      const MutableTensorView w = store.Mutable(p + name + ".weight");
      for (int64_t r = 0; r < w.rows; ++r) {
        for (float& x : w.Row<float>(r)) x *= r % s.hidden < 2 ? 0.0f : 0.3f;
      }
    }
  }
  return model;
}

inline std::vector<int32_t> RandomPrompt(int64_t tokens, int32_t vocab, uint64_t seed = 7) {
  TestRandom random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = random.Below(vocab);
  return ids;
}

// Ordinary ids, with each of the eight needles once, far apart.
inline std::vector<int32_t> NeedlePrompt(int64_t tokens, uint64_t seed = 7) {
  std::vector<int32_t> ids = RandomPrompt(tokens, kFirstNeedle, seed);
  const int order[] = {3, 6, 0, 7, 2, 5, 1, 4};
  for (int i = 0; i < 8; ++i) ids[static_cast<size_t>(tokens * (2 * i + 1) / 17)] = kFirstNeedle + order[i];
  return ids;
}

}  // namespace coppice
