// A small random model whose even layers carry states, one of each kind in turn, and whose odd layers attend;
// and one whose layers hold one part alone.
#pragma once

#include <string>

#include "tiny_model.h"

namespace coppice {

inline RecurrentShape TinyRecurrence(MixerKind kind, int64_t hidden) {
  if (kind == MixerKind::kShortConv) return {.taps = 3, .channels = hidden};
  const bool delta = kind == MixerKind::kGatedDelta;
  RecurrentShape s = {.taps = 4,
                      .key_heads = 2,
                      .value_heads = delta ? 6 : 4,
                      .key_dim = delta ? 8 : 5,
                      .value_dim = delta ? 12 : 10,
                      .tiled = delta,
                      .norm_groups = delta ? 6 : 2};
  s.channels = 2 * s.key_width() + s.value_width();
  return s;
}

inline ModelConfig TinyHybridConfig() {
  ModelConfig c = TinyConfig({.architecture = "qwen35"});
  constexpr MixerKind kKinds[] = {MixerKind::kGatedDelta, MixerKind::kMamba2, MixerKind::kShortConv};
  for (int l = 0; l < c.shape.layer_count(); l += 2) {
    LayerShape& layer = c.shape.layers[static_cast<size_t>(l)];
    const MixerKind kind = kKinds[l / 2 % 3];
    layer = {
        .rope = kNoRope, .ffn = layer.ffn, .mixer = kind, .recurrent = TinyRecurrence(kind, c.shape.hidden)};
  }
  return c;
}

// An FFN, attention, Mamba-2, a layer with attention and an FFN, a short convolution, and an FFN.
inline ModelConfig TinyBlocksConfig() {
  ModelConfig c = TinyHybridConfig();
  c.ffn = FfnKind::kReluSquared;
  c.shape.gated_ffn = false;
  std::vector<LayerShape>& layers = c.shape.layers;
  for (const size_t l : {size_t{1}, size_t{2}, size_t{4}}) layers[l].ffn = 0;
  layers[0] = layers[5] = {.rope = kNoRope, .ffn = layers[0].ffn, .mixer = MixerKind::kNone};
  return c;
}

// Under the names of llama.cpp's converter.
inline void AddTinyMixer(const ModelShape& shape, int l, TinyStore& store, TestRandom& random) {
  const std::string p = "blk." + std::to_string(l) + ".";
  const LayerShape& layer = shape.layer(l);
  const RecurrentShape& s = layer.recurrent;
  const int64_t d = shape.hidden;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    store.Add(p + name, {rows, cols}, 1 / std::sqrt(static_cast<float>(cols)), 0, random);
  };
  if (layer.mixer == MixerKind::kShortConv) {
    matrix("shortconv.in_proj.weight", 3 * d, d);
    matrix("shortconv.conv.weight", d, s.taps);
    matrix("shortconv.out_proj.weight", d, d);
    return;
  }
  if (layer.mixer == MixerKind::kGatedDelta) {
    matrix("attn_qkv.weight", s.channels, d);
    matrix("attn_gate.weight", s.value_width(), d);
    matrix("ssm_alpha.weight", s.value_heads, d);
    matrix("ssm_beta.weight", s.value_heads, d);
    store.Add(p + "ssm_norm.weight", {s.value_dim}, 0.1f, 1, random);
  } else {
    matrix("ssm_in.weight", s.value_width() + s.channels + s.value_heads, d);
    store.Add(p + "ssm_conv1d.bias", {s.channels}, 0.1f, 0, random);
    store.Add(p + "ssm_d", {s.value_heads}, 0.1f, 1, random);
    store.Add(p + "ssm_norm.weight", {s.norm_groups, s.value_width() / s.norm_groups}, 0.1f, 1, random);
  }
  matrix("ssm_conv1d.weight", s.channels, s.taps);
  store.Add(p + "ssm_a", {s.value_heads}, 0.1f, -0.4f, random);
  store.Add(p + "ssm_dt.bias", {s.value_heads}, 0.5f, -1, random);
  matrix("ssm_out.weight", d, s.value_width());
}

inline TinyModel MakeTinyHybrid(ModelConfig config = TinyHybridConfig(), uint64_t seed = 1) {
  TinyModel model{std::move(config), std::make_shared<TinyStore>()};
  const ModelShape& s = model.config.shape;
  TestRandom random(seed);
  TinyStore& store = *model.store;
  store.Add("token_embd.weight", {s.vocab, s.hidden}, 0.5f, 0, random);
  for (int l = 0; l < s.layer_count(); ++l) {
    if (s.layer(l).attends()) {
      AddTinyLayer(s, l, store, random);
      continue;
    }
    const std::string p = "blk." + std::to_string(l) + ".";
    if (s.layer(l).has_state()) AddTinyMixer(s, l, store, random);
    for (const char* norm : {"attn_norm", "ffn_norm"})
      store.Add(p + norm + ".weight", {s.hidden}, 0.1f, 1, random);
    if (!s.layer(l).has_ffn()) continue;
    for (const char* wide : {"ffn_gate", "ffn_up"})
      store.Add(p + wide + ".weight", {s.layer(l).ffn, s.hidden}, 0.125f, 0, random);
    store.Add(p + "ffn_down.weight", {s.hidden, s.layer(l).ffn}, 0.1f, 0, random);
  }
  store.Add("output_norm.weight", {s.hidden}, 0.1f, 1, random);
  store.Add("output.weight", {s.vocab, s.hidden}, 0.5f / std::sqrt(64.0f), 0, random);
  return model;
}

}  // namespace coppice
