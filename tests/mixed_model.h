// A small random model whose layers differ in every size, in their windows and in their ropes.
#pragma once

#include "shape_edit.h"
#include "tiny_model.h"

namespace coppice {

inline ModelConfig MixedConfig() {
  ModelConfig c = TinyConfig({});
  c.shape.layers = {
      {.heads = 8, .kv_heads = 2, .head_dim = 8, .rope = 0, .ffn = 96},
      {.heads = 4, .kv_heads = 4, .head_dim = 16, .window = 24, .rope = 1, .ffn = 32},
      {.heads = 6, .kv_heads = 3, .head_dim = 8, .rope = kNoRope, .ffn = 160},
      {.heads = 2, .kv_heads = 1, .head_dim = 32, .window = 40, .rope = 2, .ffn = 64},
      {.heads = 6, .kv_heads = 1, .head_dim = 24, .rope = 1, .ffn = 96},
      {.heads = 8, .kv_heads = 4, .head_dim = 16, .rope = 1, .ffn = 80},
  };
  c.ropes = {{.dims = 8, .interleaved = true},
             {.dims = 12, .base = 100, .interleaved = true},  // turns a part of the heads
             {.dims = 32, .base = 1e6, .interleaved = false}};
  return c;
}

// Without `windows` no layer has one: methods that score in a layer stand aside where its window is shorter
// than the prompt.
inline TinyModel MakeMixed(bool windows) {
  TinyModel model = MakeTiny(MixedConfig(), 5);
  if (!windows) SetInAll(model.config.shape, &LayerShape::window, 0);
  return model;
}

}  // namespace coppice
