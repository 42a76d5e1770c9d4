#include "model/config_mixture.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "model/config_blocks.h"
#include "model/config_shape.h"

namespace coppice {

namespace {

using Presence = MixtureTraits::Presence;
using Shared = MixtureTraits::Shared;

std::string LayerText(const std::string& key, size_t layer) {
  return fmt::format("{}, layer {}:", key, layer);
}

// The sizes of each layer, whose FFN stays where `dense` is true.
struct MixtureSizes {
  std::string used_key;
  std::string experts_key;
  std::vector<int64_t> experts = {}, used = {}, width = {}, shared_width = {};  // [layers]
  std::vector<bool> dense = {};                                                 // [layers]
};

// Throws for a layer whose rows use more experts than there are.
void CheckUsed(const std::string& path, const MixtureSizes& sizes) {
  for (size_t l = 0; l < sizes.dense.size(); ++l) {
    if (sizes.dense[l] || sizes.used[l] <= sizes.experts[l]) continue;
    Refuse(path, LayerText(sizes.used_key, l),
           fmt::format("{} is above {} = {}", sizes.used[l], sizes.experts_key, sizes.experts[l]));
  }
}

void SetMixtures(const MixtureSizes& sizes, const MixtureTraits& traits, ModelConfig& c) {
  for (size_t l = 0; l < sizes.dense.size(); ++l) {
    if (sizes.dense[l]) continue;
    LayerShape& layer = c.shape.layers[l];
    layer.ffn = 0;
    layer.mixture = {.experts = static_cast<int>(sizes.experts[l]),
                     .used = static_cast<int>(sizes.used[l]),
                     .width = sizes.width[l],
                     .shared_width = sizes.shared_width[l],
                     .shared_gate = traits.shared == Shared::kGated && sizes.shared_width[l] > 0};
  }
  c.router.kind = traits.router;
}

// Keys with which a file says that its experts work in another way than the layer computes.
void RefuseVariations(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                      const MixtureTraits& traits) {
  for (const auto& [key, neutral] :
       {std::pair{"expert_gating_func", traits.gguf_gating}, std::pair{"expert_group_count", 1.0},
        std::pair{"expert_group_used_count", 1.0}, std::pair{"interleave_moe_layer_step", 1.0},
        std::pair{"moe_every_n_layers", 1.0}, std::pair{"expert_group_scale", 1.0},
        std::pair{"experts_per_group", 1.0}}) {
    const double value = read.number(prefix + key).value_or(0);
    if (value != 0 && value != neutral)
      Refuse(m.path(), prefix + key, fmt::format("= {} is not supported for this architecture", value));
  }
  const std::string norm_key = prefix + "expert_weights_norm";
  if (const std::optional<bool> norm = m.Bool(norm_key); norm && *norm != traits.gguf_normalise)
    Refuse(m.path(), norm_key, fmt::format("= {} is not supported for this architecture", *norm));
}

std::vector<int64_t> SharedWidths(const KeyReader& read, const std::string& prefix,
                                  const MixtureTraits& traits, const ModelShape& shape) {
  const std::string key = prefix + "expert_shared_feed_forward_length";
  const std::string count_key = prefix + "expert_shared_count";
  const int64_t width = read.integer(key).value_or(0);
  const int64_t count = read.integer(count_key).value_or(0);
  std::vector<int64_t> widths(shape.layers.size(), 0);
  if (traits.shared == Shared::kNone) {
    if (width != 0) Refuse(read.path, key, fmt::format("= {} is not supported for this architecture", width));
    if (count != 0)
      Refuse(read.path, count_key, fmt::format("= {} is not supported for this architecture", count));
    return widths;
  }
  if (traits.shared == Shared::kFfn) {
    for (size_t l = 0; l < widths.size(); ++l) widths[l] = shape.layers[l].ffn;
    return widths;
  }
  if (width == 0 && traits.shared == Shared::kPlain) return widths;
  for (size_t l = 0; l < widths.size(); ++l)  // llama.cpp's width where the file gives none
    widths[l] = width == 0 ? shape.layers[l].ffn : read.Count(key, limits::kMaxHidden);
  return widths;
}

int64_t LeadingDense(const KeyReader& read, const std::string& prefix, int layers) {
  const std::string key = prefix + "leading_dense_block_count";
  const int64_t dense = read.integer(key).value_or(0);
  if (dense < 0 || dense > layers)
    Refuse(read.path, key,
           fmt::format("= {} is not from 0 to {} = {}", dense, prefix + "block_count", layers));
  return dense;
}

// The width of experts where a file gives that of FFNs alone.
std::vector<int64_t> UsualWidths(const KeyReader& read, const std::string& prefix,
                                 const MixtureTraits& traits, const MixtureSizes& sizes,
                                 const ModelShape& shape) {
  std::vector<int64_t> widths;
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    const int64_t ffn = shape.layers[l].ffn;
    const int64_t parts = traits.gguf_ffn_of_row ? sizes.used[l] : 1;
    if (!sizes.dense[l] && ffn % parts != 0) {
      Refuse(read.path, LayerText(sizes.used_key, l),
             fmt::format("{} does not divide {}feed_forward_length = {}", parts, prefix, ffn));
    }
    widths.push_back(std::max<int64_t>(ffn / parts, 1));
  }
  return widths;
}

}  // namespace

std::string GgufFfnKey(const GgufMetadata& m, const std::string& prefix, const MixtureTraits& traits) {
  const std::string key = prefix + "feed_forward_length";
  const std::string of_experts = prefix + "expert_feed_forward_length";
  if (traits.presence != Presence::kAlways || m.IsArray(key) || !m.Has(of_experts)) return key;
  return m.Integer(key).value_or(0) == 0 ? of_experts : key;
}

void ReadGgufMixture(const GgufMetadata& m, const KeyReader& read, const std::string& prefix,
                     const MixtureTraits& traits, ModelConfig& c) {
  const int layers = c.shape.layer_count();
  MixtureSizes sizes{.used_key = prefix + "expert_used_count", .experts_key = prefix + "expert_count"};
  const bool has = read.Has(sizes.experts_key) &&
                   (read.list(sizes.experts_key) || read.integer(sizes.experts_key).value_or(0) != 0);
  if (!has && traits.presence == Presence::kAlways) Refuse(m.path(), sizes.experts_key, "is missing");
  if (!has) return;
  if (traits.presence == Presence::kNever) {
    Refuse(m.path(), sizes.experts_key, "is not 0: this architecture has no mixtures of experts here");
  }
  RefuseVariations(m, read, prefix, traits);
  sizes.experts = read.Counts(sizes.experts_key, limits::kMaxExperts, layers);
  sizes.used = read.Counts(sizes.used_key, limits::kMaxExperts, layers);
  const int64_t dense = LeadingDense(read, prefix, layers);
  for (int l = 0; l < layers; ++l) sizes.dense.push_back(l < dense);
  if (dense > 0 && GgufFfnKey(m, prefix, traits) != prefix + "feed_forward_length") {
    Refuse(m.path(), prefix + "feed_forward_length",
           fmt::format("is missing, and {}leading_dense_block_count = {} layers need it", prefix, dense));
  }
  CheckUsed(m.path(), sizes);
  const std::string width_key = prefix + "expert_feed_forward_length";
  sizes.width = read.Has(width_key) ? read.Counts(width_key, limits::kMaxHidden, layers)
                                    : UsualWidths(read, prefix, traits, sizes, c.shape);
  sizes.shared_width = SharedWidths(read, prefix, traits, c.shape);
  SetMixtures(sizes, traits, c);
  c.router.normalise = traits.gguf_normalise && traits.router != RouterKind::kTopKSoftmax;
  const std::string scale_key = prefix + "expert_weights_scale";
  if (read.number(scale_key).value_or(0) != 0)  // llama.cpp's default
    c.router.scale = static_cast<float>(read.Positive(scale_key, 1));
}

namespace {

std::vector<bool> BlocksWithoutMixture(const std::vector<BlockKind>& blocks) {
  std::vector<bool> dense;
  for (const BlockKind block : blocks) dense.push_back(block != BlockKind::kMixture);
  return dense;
}

// transformers: a mixture in every decoder_sparse_step-th layer that mlp_only_layers does not name.
std::vector<bool> DenseLayers(const HfKeys& keys, const KeyReader& read, int layers) {
  const int64_t step = read.Count("decoder_sparse_step", INT32_MAX, 1);
  std::vector<bool> dense;
  for (int l = 0; l < layers; ++l) dense.push_back((l + 1) % step != 0);
  if (!keys.Has("mlp_only_layers")) return dense;
  const std::optional<std::vector<int64_t>> named = keys.Integers("mlp_only_layers");
  if (!named) Refuse(keys.path, "mlp_only_layers", "is not a list of layers");
  for (size_t i = 0; i < named->size(); ++i) {
    const int64_t layer = (*named)[i];
    if (layer < 0 || layer >= layers) {
      Refuse(keys.path, fmt::format("mlp_only_layers[{}]", i),
             fmt::format("= {} is no layer of num_hidden_layers = {}", layer, layers));
    }
    dense[static_cast<size_t>(layer)] = true;
  }
  return dense;
}

}  // namespace

void ReadHfMixture(const HfKeys& keys, const KeyReader& read, const HfMixture& names,
                   const MixtureTraits& traits, ModelConfig& c) {
  if (names.experts == nullptr) return;
  if (names.enabled != nullptr && !keys.Flag(names.enabled, false)) {
    for (const char* unused : {names.experts, names.used, names.width}) keys.Has(unused);
    return;
  }
  const int layers = c.shape.layer_count();
  const auto of_all = [&](int64_t value) { return std::vector<int64_t>(c.shape.layers.size(), value); };
  MixtureSizes sizes{.used_key = names.used, .experts_key = names.experts};
  const std::optional<int64_t> one = keys.Integer("num_experts");
  const std::optional<int64_t> other = keys.Integer("num_local_experts");
  if (one && other && *one != *other) {
    Refuse(keys.path, "num_experts", fmt::format("= {} differs from num_local_experts = {}", *one, *other));
  }
  if (names.may_lack && keys.Integer(names.experts).value_or(0) == 0) {
    for (const char* unused : {names.used, names.width}) keys.Has(unused);
    return;
  }
  sizes.dense = names.dense_layers ? DenseLayers(keys, read, layers)
                : names.of_blocks  ? BlocksWithoutMixture(HfBlocks(keys, layers))
                                   : std::vector<bool>(c.shape.layers.size(), false);
  if (names.first_dense != nullptr) {
    const int64_t first = keys.Integer(names.first_dense).value_or(0);
    if (first < 0 || first > layers)
      Refuse(keys.path, names.first_dense, fmt::format("= {} is not from 0 to the {} layers", first, layers));
    std::fill_n(sizes.dense.begin(), first, true);
  }
  if (names.of_blocks && std::ranges::find(sizes.dense, false) == sizes.dense.end()) {
    for (const char* unused : {names.experts, names.used, names.width, names.shared_width, names.scale})
      keys.Has(unused);
    keys.Has("norm_topk_prob");
    return;
  }
  const bool normalise = !names.may_normalise || keys.Flag("norm_topk_prob", false);
  const int64_t used = read.Count(sizes.used_key, limits::kMaxExperts);
  const int64_t width = read.Count(names.width, limits::kMaxHidden);
  const int64_t shared = names.shared_width == nullptr || keys.Integer(names.shared_width).value_or(0) == 0
                             ? 0
                             : read.Count(names.shared_width, limits::kMaxHidden);
  if (names.dense_layers && keys.Integer(names.experts).value_or(0) == 0)
    return;  // then all layers are dense
  sizes.experts = of_all(read.Count(names.experts, limits::kMaxExperts));
  sizes.used = of_all(used);
  sizes.width = of_all(width);
  sizes.shared_width = of_all(shared);
  if (traits.shared == Shared::kFfn) {
    for (size_t l = 0; l < c.shape.layers.size(); ++l) sizes.shared_width[l] = c.shape.layers[l].ffn;
  }
  CheckUsed(keys.path, sizes);
  SetMixtures(sizes, traits, c);
  c.router.normalise = normalise && traits.router != RouterKind::kTopKSoftmax;
  c.router_bias = names.bias == nullptr || keys.Flag(names.bias, true);
  if (names.scale != nullptr) c.router.scale = static_cast<float>(ReadMultiplier(read, names.scale));
}

void RenameExperts(nlohmann::json& j) {
  const auto has = [&](const char* key) { return j.contains(key) && !j[key].is_null(); };
  if (has("num_experts") && !has("num_local_experts")) j["num_local_experts"] = j["num_experts"];
  if (has("num_local_experts") && !has("num_experts")) j["num_experts"] = j["num_local_experts"];
}

}  // namespace coppice
