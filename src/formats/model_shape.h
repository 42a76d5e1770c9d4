// The sizes and the name of a model. It is all that a pruning method may know of it: never its weights.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace coppice {

// The rope of a layer that does not rotate its queries and keys.
inline constexpr int kNoRope = -1;

// One layer: an attention and an FFN. Layers of one model may differ in every field.
struct LayerShape {
  int heads = 0;       // H
  int kv_heads = 0;    // G
  int head_dim = 0;    // c
  int32_t window = 0;  // sliding window of attention; 0: none
  int rope = 0;        // which of ModelConfig::ropes; kNoRope: none
  int64_t ffn = 0;     // I

  int64_t query_width() const { return int64_t{heads} * head_dim; }
  int64_t key_width() const { return int64_t{kv_heads} * head_dim; }  // of a key, and of a value

  friend auto operator<=>(const LayerShape&, const LayerShape&) = default;
};

struct ModelShape {
  std::string architecture;  // "llama", "qwen2", "bloom", ... as GGUF names them
  std::string name;          // the file's general.name, or empty
  int64_t hidden = 0;        // d
  int64_t vocab = 0;         // V
  bool gated_ffn = true;     // three matrices (SwiGLU, GeGLU) or two
  bool alibi = false;        // positions are ALiBi's biases of attention, not RoPE's rotations
  bool post_norms = false;   // a norm after attention and after the FFN, before the residual is added
  std::vector<LayerShape> layers = {};  // [L]

  int layer_count() const { return static_cast<int>(layers.size()); }
  const LayerShape& layer(int l) const { return layers[static_cast<size_t>(l)]; }

  // The narrowest sliding window of any layer. 0: no layer has one.
  int32_t NarrowestWindow() const {
    int32_t least = 0;
    for (const LayerShape& l : layers) {
      if (l.window > 0) least = least == 0 ? l.window : std::min(least, l.window);
    }
    return least;
  }
  // The widest sliding window, beyond which no layer attends. 0: a layer has none.
  int32_t WidestWindow() const {
    int32_t most = 0;
    for (const LayerShape& l : layers) {
      if (l.window == 0) return 0;
      most = std::max(most, l.window);
    }
    return most;
  }
  // The narrowest FFN of any layer.
  int64_t NarrowestFfn() const {
    return layers.empty() ? 0 : std::ranges::min(layers, {}, &LayerShape::ffn).ffn;
  }
};

}  // namespace coppice
