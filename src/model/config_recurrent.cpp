#include "model/config_recurrent.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "model/config_blocks.h"
#include "model/config_rope.h"
#include "model/config_shape.h"

namespace coppice {

namespace {

void SetMixers(const std::vector<bool>& attends, MixerKind kind, const RecurrentShape& sizes,
               ModelShape& shape) {
  for (size_t l = 0; l < attends.size(); ++l) {
    if (attends[l]) continue;
    LayerShape& layer = shape.layers[l];
    layer = {.rope = kNoRope, .ffn = layer.ffn, .mixture = layer.mixture, .mixer = kind, .recurrent = sizes};
  }
}

int64_t ReadTaps(const KeyReader& read, const std::string& key) {
  const int64_t taps = read.Count(key, limits::kMaxTaps);
  if (taps < 2) Refuse(read.path, key, fmt::format("= {} is no convolution of several rows", taps));
  return taps;
}

// Sizes of a recurrence whose value heads share key heads evenly.
void CheckHeads(const RecurrentShape& s, const std::string& path, const std::string& values_key,
                const std::string& keys_key) {
  if (s.value_heads % s.key_heads == 0) return;
  Refuse(path, values_key,
         fmt::format("= {} is no multiple of {} = {}", s.value_heads, keys_key, s.key_heads));
}

// Queries, keys and values go through the convolution; the norm is of each head.
RecurrentShape SizesOf(int64_t taps, int64_t key_heads, int64_t value_heads, int64_t key_dim,
                       int64_t value_dim) {
  return {.taps = static_cast<int>(taps),
          .channels = 2 * key_heads * key_dim + value_heads * value_dim,
          .key_heads = static_cast<int>(key_heads),
          .value_heads = static_cast<int>(value_heads),
          .key_dim = static_cast<int>(key_dim),
          .value_dim = static_cast<int>(value_dim),
          .norm_groups = static_cast<int>(value_heads)};
}

// GGUF: value heads are in the order in which neighbours read different key heads (llama.cpp's converter).
RecurrentShape GgufRecurrence(const KeyReader& read, const std::string& p) {
  const int64_t inner = read.Count(p + "ssm.inner_size", limits::kMaxHidden);
  const int64_t heads = read.Count(p + "ssm.time_step_rank", limits::kMaxHeads);
  if (inner % heads != 0) {
    Refuse(read.path, p + "ssm.inner_size",
           fmt::format("= {} is no multiple of {}ssm.time_step_rank = {}", inner, p, heads));
  }
  RecurrentShape s =
      SizesOf(ReadTaps(read, p + "ssm.conv_kernel"), read.Count(p + "ssm.group_count", limits::kMaxHeads),
              heads, read.Count(p + "ssm.state_size", limits::kMaxHeadDim), inner / heads);
  CheckHeads(s, read.path, p + "ssm.time_step_rank", p + "ssm.group_count");
  s.tiled = true;
  return s;
}

RecurrentShape GgufMamba(const KeyReader& read, const std::string& p) {
  RecurrentShape s = GgufRecurrence(read, p);
  s.tiled = false;
  s.norm_groups = s.key_heads;
  return s;
}

RecurrentShape GgufSizes(const KeyReader& read, const std::string& p, MixerKind kind, int64_t hidden) {
  switch (kind) {
    case MixerKind::kShortConv:
      return {.taps = static_cast<int>(ReadTaps(read, p + "shortconv.l_cache")), .channels = hidden};
    case MixerKind::kMamba2:
      return GgufMamba(read, p);
    case MixerKind::kGatedDelta:
    case MixerKind::kAttention:
    case MixerKind::kNone:
      break;
  }
  return GgufRecurrence(read, p);
}

// Which layers attend: those with heads of keys; as a list says which do not; or every so many layers one.
std::vector<bool> GgufAttending(const GgufMetadata& m, const KeyReader& read, const std::string& p,
                                const Architecture& row, int layers) {
  std::vector<bool> attends;
  if (row.state != MixerKind::kGatedDelta) {
    const std::string key = p + "attention.head_count_kv";
    const std::optional<std::vector<int64_t>> heads = m.IsArray(key) ? m.Integers(key) : std::nullopt;
    if (!heads) Refuse(m.path(), key, fmt::format("is not a list with the heads of {} layers", layers));
    for (const int64_t count : *heads) attends.push_back(count != 0);
    return attends;
  }
  const std::string list_key = p + "attention.recurrent_layers";
  if (m.IsArray(list_key)) {
    attends = *m.Bools(list_key);
    if (std::ssize(attends) != layers)
      Refuse(read.path, list_key, fmt::format("has {} entries for {} layers", attends.size(), layers));
    attends.flip();
    return attends;
  }
  const int64_t every = read.Count(p + "full_attention_interval", limits::kMaxLayers, row.attention_every);
  attends = AllBut(layers, every);
  attends.flip();
  return attends;
}

// Drops the layers behind the model's own, which predict further tokens.
void CutPredictors(const KeyReader& read, const std::string& key, const std::string& layers_key,
                   ModelShape& shape) {
  const int64_t predictors = read.integer(key).value_or(0);
  if (predictors < 0 || predictors >= shape.layer_count())
    Refuse(read.path, key,
           fmt::format("= {} leaves none of {} = {}", predictors, layers_key, shape.layer_count()));
  shape.layers.resize(shape.layers.size() - static_cast<size_t>(predictors));
}

}  // namespace

void ReadGgufMixers(const GgufMetadata& m, const KeyReader& read, const std::string& p,
                    const Architecture& row, ModelConfig& c) {
  if (row.state == MixerKind::kAttention) return;
  const int layers = c.shape.layer_count();
  c.recurrent_norm_eps = c.norm_eps;
  SetMixers(GgufAttending(m, read, p, row, layers), row.state, GgufSizes(read, p, row.state, c.shape.hidden),
            c.shape);
  CutPredictors(read, p + "nextn_predict_layers", p + "block_count", c.shape);
  if (!row.one_mixer) return;
  KeepOneMixer(GgufBlocks(m, p, c.shape), c.shape);
  CheckGgufBlocks(read, p, c.shape);
}

namespace {

// The names that a type of layer has in layer_types.
struct LayerTypes {
  std::vector<std::string_view> attending, others;
};

LayerTypes TypesOf(MixerKind kind) {
  switch (kind) {
    case MixerKind::kShortConv:
      return {{"full_attention"}, {"conv"}};
    case MixerKind::kMamba2:
      return {{"attention", "full_attention"}, {"mamba", "linear_attention"}};
    case MixerKind::kGatedDelta:
    case MixerKind::kAttention:
    case MixerKind::kNone:
      break;
  }
  return {{"full_attention"}, {"linear_attention"}};
}

std::vector<bool> Listed(const HfKeys& keys, const char* key, MixerKind kind, int layers) {
  const nlohmann::json& types = keys.json[key];
  if (!types.is_array() || std::ssize(types) != layers)
    Refuse(keys.path, key, fmt::format("is not a list of {} types", layers));
  const LayerTypes known = TypesOf(kind);
  std::vector<bool> attends;
  for (const nlohmann::json& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : type.dump();
    attends.push_back(std::ranges::find(known.attending, name) != known.attending.end());
    if (!attends.back() && std::ranges::find(known.others, name) == known.others.end()) {
      Refuse(keys.path, key,
             fmt::format("holds {}, which is neither {} nor {}", name, known.attending.front(),
                         known.others.front()));
    }
  }
  return attends;
}

// LFM2's older files list the layers that attend.
std::vector<bool> ByIndices(const HfKeys& keys, int layers) {
  const char* key = "full_attn_idxs";
  std::vector<bool> attends(static_cast<size_t>(layers), !keys.Has(key));
  if (!keys.Has(key)) return attends;
  const std::optional<std::vector<int64_t>> indices = keys.Integers(key);
  if (!indices) Refuse(keys.path, key, "is not a list of layers");
  for (const int64_t l : *indices) {
    if (l < 0 || l >= layers)
      Refuse(keys.path, key, fmt::format("holds {}, which is none of {} layers", l, layers));
    attends[static_cast<size_t>(l)] = true;
  }
  return attends;
}

std::vector<bool> HfAttending(const HfKeys& keys, const KeyReader& read, const Architecture& row,
                              int layers) {
  if (row.one_mixer) {
    std::vector<bool> attends;
    for (const BlockKind block : HfBlocks(keys, layers)) attends.push_back(block == BlockKind::kAttention);
    return attends;
  }
  if (keys.Has("layer_types")) return Listed(keys, "layer_types", row.state, layers);
  if (row.state == MixerKind::kShortConv) return ByIndices(keys, layers);
  if (row.state == MixerKind::kMamba2) {
    if (keys.Has("layers_block_type")) return Listed(keys, "layers_block_type", row.state, layers);
    return std::vector<bool>(static_cast<size_t>(layers), false);
  }
  const int64_t every = read.Count("full_attention_interval", limits::kMaxLayers, row.attention_every);
  std::vector<bool> attends = AllBut(layers, every);
  attends.flip();
  return attends;
}

RecurrentShape HfDelta(const KeyReader& read) {
  RecurrentShape s =
      SizesOf(ReadTaps(read, "linear_conv_kernel_dim"), read.Count("linear_num_key_heads", limits::kMaxHeads),
              read.Count("linear_num_value_heads", limits::kMaxHeads),
              read.Count("linear_key_head_dim", limits::kMaxHeadDim),
              read.Count("linear_value_head_dim", limits::kMaxHeadDim));
  CheckHeads(s, read.path, "linear_num_value_heads", "linear_num_key_heads");
  return s;
}

// The clamp of a Mamba layer's steps: none but from 0 to infinity, which transformers writes in two ways.
void RefuseStepLimit(const HfKeys& keys) {
  const char* key = "time_step_limit";
  if (!keys.Has(key)) return;
  const nlohmann::json& limit = keys.json[key];
  const auto is_infinite = [](const nlohmann::json& v) {
    return v == nlohmann::json{{"__float__", "Infinity"}} || (v.is_number() && v.get<double>() > 1e30);
  };
  if (limit.is_array() && limit.size() == 2 && limit[0].is_number() && limit[0].get<double>() == 0 &&
      is_infinite(limit[1]))
    return;
  Refuse(keys.path, key, fmt::format("= {} is not supported (0 to infinity)", limit.dump()));
}

RecurrentShape HfMamba(const HfKeys& keys, const KeyReader& read, int64_t hidden) {
  const int64_t heads = read.Count("mamba_n_heads", limits::kMaxHeads);
  const int64_t expand = read.Count("mamba_expand", limits::kMaxHeads, 2);
  const bool is_auto = keys.Has("mamba_d_head") && keys.json["mamba_d_head"] == "auto";
  if (is_auto && expand * hidden % heads != 0) {
    Refuse(keys.path, "mamba_n_heads",
           fmt::format("= {} does not divide mamba_expand hidden_size = {}", heads, expand * hidden));
  }
  const int64_t head_dim =
      is_auto ? expand * hidden / heads : read.Count("mamba_d_head", limits::kMaxHeadDim);
  if (heads * head_dim != expand * hidden) {
    Refuse(keys.path, "mamba_d_head",
           fmt::format("= {} times mamba_n_heads = {} is not mamba_expand hidden_size = {}", head_dim, heads,
                       expand * hidden));
  }
  if (keys.Flag("mamba_proj_bias", false)) Refuse(keys.path, "mamba_proj_bias", "= true is not supported");
  keys.Flag("mamba_conv_bias", true);  // the tensor tells
  RefuseStepLimit(keys);
  RecurrentShape s = SizesOf(ReadTaps(read, "mamba_d_conv"), read.Count("mamba_n_groups", limits::kMaxHeads),
                             heads, read.Count("mamba_d_state", limits::kMaxHeadDim), head_dim);
  CheckHeads(s, read.path, "mamba_n_heads", "mamba_n_groups");
  s.norm_groups = s.key_heads;
  return s;
}

// Nemotron-H's keys; a width is that of its heads together, whatever `expand` says.
RecurrentShape HfBlockMamba(const HfKeys& keys, const KeyReader& read) {
  RefuseStepLimit(keys);
  RecurrentShape s = SizesOf(ReadTaps(read, "conv_kernel"), read.Count("n_groups", limits::kMaxHeads),
                             read.Count("mamba_num_heads", limits::kMaxHeads),
                             read.Count("ssm_state_size", limits::kMaxHeadDim),
                             read.Count("mamba_head_dim", limits::kMaxHeadDim));
  CheckHeads(s, read.path, "mamba_num_heads", "n_groups");
  s.norm_groups = s.key_heads;
  return s;
}

// LFM2's rule of the FFN's width (transformers, Lfm2MLP).
void AdjustFfns(const HfKeys& keys, const KeyReader& read, ModelShape& shape) {
  const bool adjusts = keys.Flag("block_auto_adjust_ff_dim", false);
  const std::optional<double> factor = read.number("block_ffn_dim_multiplier");
  const int64_t multiple = read.Count("block_multiple_of", limits::kMaxHidden, 256);
  if (!adjusts) return;
  for (LayerShape& layer : shape.layers) {
    layer.ffn = 2 * layer.ffn / 3;
    if (!factor) continue;
    const double scaled = ReadMultiplier(read, "block_ffn_dim_multiplier") * static_cast<double>(layer.ffn);
    layer.ffn = (static_cast<int64_t>(scaled) + multiple - 1) / multiple * multiple;
    if (layer.ffn < 1 || layer.ffn > limits::kMaxHidden)
      Refuse(keys.path, "block_ffn_dim_multiplier", fmt::format("= {} gives FFNs of {}", *factor, layer.ffn));
  }
}

RecurrentShape HfShortConv(const HfKeys& keys, const KeyReader& read, int64_t hidden) {
  if (keys.Flag("conv_bias", false)) Refuse(keys.path, "conv_bias", "= true is not supported");
  return {.taps = static_cast<int>(ReadTaps(read, "conv_L_cache")), .channels = hidden};
}

}  // namespace

void ReadHfMixers(const HfKeys& keys, const KeyReader& read, const Architecture& row, ModelConfig& c) {
  if (row.state == MixerKind::kAttention) return;
  c.recurrent_norm_eps = c.norm_eps;
  RecurrentShape sizes;
  if (row.state == MixerKind::kGatedDelta) {
    if (!keys.Flag("attn_output_gate", true))
      Refuse(keys.path, "attn_output_gate", "= false is not supported");
    sizes = HfDelta(read);
  }
  if (row.state == MixerKind::kMamba2)
    sizes = row.one_mixer ? HfBlockMamba(keys, read) : HfMamba(keys, read, c.shape.hidden);
  if (row.state == MixerKind::kShortConv) {
    sizes = HfShortConv(keys, read, c.shape.hidden);
    if (!c.shape.HasMixtures()) AdjustFfns(keys, read, c.shape);
  }
  SetMixers(HfAttending(keys, read, row, c.shape.layer_count()), row.state, sizes, c.shape);
  if (!row.one_mixer) return;
  KeepOneMixer(HfBlocks(keys, c.shape.layer_count()), c.shape);
  CheckHfBlocks(keys, read, c);
}

}  // namespace coppice
