// A tiny model whose attention is far from ties and turns while it generates, so that what was dropped is
// wanted again, and bf16 agrees with fp64 on what is wanted.
//
// Every key points in the direction of its token and every query in that of its own, in one plane that RoPE
// all but leaves alone; a query looks at keys the more the smaller the angle between. Ids below kFirstAsker
// have the key direction 22.5 degrees * (id % 16). Asker a looks in the direction 45 a + `off` degrees and is
// always followed by asker a + 1: a generated text looks around the compass.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tiny_model.h"

namespace coppice {

inline constexpr int32_t kFirstAsker = 42;  // eight of them

inline void AimCompass(const LayerShape& s, const std::string& layer, bool interleaved, TinyStore& store) {
  // The pair of dimensions of a head that turns slowest.
  const int64_t x = interleaved ? s.head_dim - 2 : s.head_dim / 2 - 1;
  const int64_t y = s.head_dim - 1;
  for (const auto& [name, coordinate] : {std::pair{"attn_q.weight", 2u}, std::pair{"attn_k.weight", 0u}}) {
    const MutableTensorView w = store.Mutable(layer + name);
    for (int64_t r = 0; r < w.rows; ++r) {
      const std::span<float> row = w.Row<float>(r);
      const bool carries = r % s.head_dim == x || r % s.head_dim == y;
      for (float& value : row) value *= carries ? 0.0f : 0.3f;
      if (carries) row[coordinate + (r % s.head_dim == y ? 1 : 0)] = 1;
    }
  }
  for (float& value : store.Mutable(layer + "attn_norm.weight").Row<float>(0).first(4)) value = 1;
  // No layer writes to what the compass needs.
  for (const char* name : {"attn_output.weight", "ffn_down.weight"}) {
    const MutableTensorView w = store.Mutable(layer + name);
    for (int64_t r = 0; r < w.rows; ++r) {
      for (float& value : w.Row<float>(r)) value *= r < 12 ? 0.0f : 0.3f;
    }
  }
}

inline TinyModel MakeCompass(const TinyOptions& options, double off = 30.5) {
  TinyModel model = MakeTiny(options);
  model.config.ropes.front().base = 1e8;
  const ModelShape& s = model.config.shape;
  TinyStore& store = *model.store;
  const MutableTensorView embedding = store.Mutable("token_embd.weight");
  const MutableTensorView output = store.Mutable("output.weight");
  for (int32_t id = 0; id < s.vocab; ++id) {
    const std::span<float> e = embedding.Row<float>(id);  // coordinates: 0-1 key, 2-3 query, 4-11 which asker
    std::fill_n(e.begin(), 12, 0.0f);
    const int32_t asker = id - kFirstAsker;
    const double degree = std::acos(-1.0) / 180;
    const double key = degree * 22.5 * (asker < 0 ? id % 16 : 2 * asker);
    const double query = degree * (asker < 0 ? off : 45.0 * asker + off);
    e[0] = static_cast<float>(2 * std::cos(key));
    e[1] = static_cast<float>(2 * std::sin(key));
    e[2] = static_cast<float>(3 * std::cos(query));
    e[3] = static_cast<float>(3 * std::sin(query));
    if (asker < 0) continue;
    e[static_cast<size_t>(4 + asker)] = 3;
    output.Row<float>(kFirstAsker + (asker + 1) % 8)[static_cast<size_t>(4 + asker)] = 1.5;
  }
  for (int l = 0; l < s.layer_count(); ++l)
    AimCompass(s.layer(l), "blk." + std::to_string(l) + ".", model.config.ropes.front().interleaved, store);
  return model;
}

// Blocks of `block` tokens of one direction each, block j in direction (first + stride j) mod 16; `askers`
// times asker 0 at the end.
inline std::vector<int32_t> CompassPrompt(int64_t tokens, int block, int stride, int first, int64_t askers) {
  TestRandom random(5);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) {
    const auto direction = static_cast<int32_t>((first + stride * (i / block)) % 16);
    ids.push_back(i + askers >= tokens ? kFirstAsker : direction + 16 * random.Below(2));
  }
  return ids;
}

}  // namespace coppice
