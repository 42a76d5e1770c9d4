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
// LayerShape::keys_of of a layer with keys and values of its own.
inline constexpr int kOwnKeys = -1;

// A mixture of experts: FFNs of which a router chooses some for each row.
struct MixtureShape {
  int experts = 0;           // E; 0: the layer has no mixture
  int used = 0;              // k: of a row
  int64_t width = 0;         // of an expert
  int64_t shared_width = 0;  // of the expert that every row runs; 0: there is none
  bool shared_gate = false;  // a sigmoid scales what the shared expert gives

  friend auto operator<=>(const MixtureShape&, const MixtureShape&) = default;
};

// A mixture of experts runs at most so many rows at a time, and packs the weights of each expert once for
// them. With 128 experts, of which a row uses 8, an expert has 256 of these rows.
inline constexpr int64_t kMixtureRows = 4096;

// What mixes the rows of a layer.
enum class MixerKind : uint8_t {
  kAttention,
  // These carry a state from row to row instead of keys and values (kernels/recurrence.h).
  kGatedDelta,  // Qwen3.5's
  kShortConv,   // a convolution between two gates, LFM2's
  kMamba2,      // Granite 4's and Nemotron-H's
  kNone         // nothing: the layer is an FFN alone
};

// The sizes of a mixer with a state.
struct RecurrentShape {
  int taps = 0;          // of its convolution
  int64_t channels = 0;  // of its convolution
  int key_heads = 0;     // of its recurrence; 0: it has none
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool tiled = false;   // value head h reads key head h mod key_heads; else neighbours share one
  int norm_groups = 0;  // the norm of what the recurrence gives is by itself in each of so many parts

  int64_t key_width() const { return int64_t{key_heads} * key_dim; }
  int64_t value_width() const { return key_heads == 0 ? channels : int64_t{value_heads} * value_dim; }
  // fp32 values that a sequence keeps: the last inputs of the convolution, and the recurrence's state.
  int64_t state_values() const {
    return int64_t{taps - 1} * channels + int64_t{value_heads} * key_dim * value_dim;
  }

  friend auto operator<=>(const RecurrentShape&, const RecurrentShape&) = default;
};

// One layer: a mixer, and an FFN or a mixture of experts; or one of the two. Layers of a model may differ in
// every field. One that does not attend has no heads of attention, no window and no RoPE.
struct LayerShape {
  int heads = 0;           // H
  int kv_heads = 0;        // G
  int head_dim = 0;        // c
  int32_t window = 0;      // sliding window of attention; 0: none
  int rope = 0;            // which of ModelConfig::ropes; kNoRope: none
  int64_t ffn = 0;         // I; 0: the layer has a mixture instead, or no FFN
  int keys_of = kOwnKeys;  // of ModelShape::tail: the layer whose keys and values it attends
  // What attends is multiplied by sigmoid(W norm(x)), of its width, before the last product.
  bool output_gate = false;
  MixtureShape mixture = {};
  MixerKind mixer = MixerKind::kAttention;
  RecurrentShape recurrent = {};

  bool attends() const { return mixer == MixerKind::kAttention; }
  bool has_state() const { return !attends() && mixer != MixerKind::kNone; }
  bool has_ffn() const { return ffn > 0 || mixture.experts > 0; }
  // Whether a method that scores tokens by attention can do so here: scores end at a window.
  bool scores() const { return attends() && window == 0; }
  int64_t state_bytes() const { return has_state() ? recurrent.state_values() * int64_t{sizeof(float)} : 0; }
  int64_t query_width() const { return int64_t{heads} * head_dim; }
  int64_t key_width() const { return int64_t{kv_heads} * head_dim; }  // of a key, and of a value
  // The widest input of the last product of an FFN here.
  int64_t inner_width() const { return std::max({ffn, mixture.width, mixture.shared_width}); }

  friend auto operator<=>(const LayerShape&, const LayerShape&) = default;
};

struct ModelShape {
  std::string architecture;  // "llama", "qwen2", "bloom", ... as GGUF names them
  std::string name;          // the file's general.name, or empty
  int64_t hidden = 0;        // d
  int64_t vocab = 0;         // V
  bool gated_ffn = true;     // three matrices (SwiGLU, GeGLU) or two, also of each expert
  bool alibi = false;        // positions are ALiBi's biases of attention, not RoPE's rotations
  bool post_norms = false;   // a norm after attention and after the FFN, before the residual is added
  // Each layer adds what it makes of an embedding of its own, of this width; 0: none does (Gemma 4).
  int64_t layer_embedding = 0;
  std::vector<LayerShape> layers = {};  // [L] those with keys and values of their own
  // The layers behind them, which attend the keys and values of some of them. No row needs these layers but
  // those whose output is wanted, so a prefill runs them for one row, and pruning finds nothing there.
  std::vector<LayerShape> tail = {};

  int layer_count() const { return static_cast<int>(layers.size()); }
  // A layer, or one of the tail: their numbers go on behind those of the layers.
  const LayerShape& AnyLayer(int l) const {
    return l < layer_count() ? layer(l) : tail[static_cast<size_t>(l - layer_count())];
  }
  // Layers and tail.
  std::vector<LayerShape> AllLayers() const {
    std::vector<LayerShape> all = layers;
    all.insert(all.end(), tail.begin(), tail.end());
    return all;
  }
  const LayerShape& layer(int l) const { return layers[static_cast<size_t>(l)]; }

  // Whether a layer carries a state from row to row.
  bool HasStates() const { return std::ranges::any_of(layers, &LayerShape::has_state); }
  // Of one sequence, in all layers.
  int64_t StateBytes() const {
    int64_t bytes = 0;
    for (const LayerShape& l : layers) bytes += l.state_bytes();
    return bytes;
  }
  // The first layer that attends; layer 0 if none does.
  const LayerShape& FirstAttending() const {
    const auto found = std::ranges::find_if(layers, &LayerShape::attends);
    return found == layers.end() ? layers.front() : *found;
  }
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
      if (!l.attends()) continue;
      if (l.window == 0) return 0;
      most = std::max(most, l.window);
    }
    return most;
  }
  bool HasMixtures() const {
    return std::ranges::any_of(layers, [](const LayerShape& l) { return l.mixture.experts > 0; });
  }
  // The narrowest FFN of any layer; 0 if a layer has a mixture instead, or none.
  int64_t NarrowestFfn() const {
    return layers.empty() ? 0 : std::ranges::min(layers, {}, &LayerShape::ffn).ffn;
  }
};

}  // namespace coppice
