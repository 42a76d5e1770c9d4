#include "model/config_blocks.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "model/config_shape.h"

namespace coppice {

namespace {

constexpr const char* kPattern = "hybrid_override_pattern";

// The key of the list, or "" where the file has the pattern. transformers prefers the list.
std::string ListKey(const HfKeys& keys) {
  for (const char* key : {"layers_block_type", "layer_types"}) {
    if (keys.Has(key)) return key;
  }
  return "";
}

std::optional<BlockKind> KindOf(std::string_view name) {
  if (name == "M" || name == "mamba" || name == "linear_attention") return BlockKind::kState;
  if (name == "*" || name == "attention" || name == "full_attention") return BlockKind::kAttention;
  if (name == "-" || name == "mlp") return BlockKind::kFfn;
  if (name == "E" || name == "moe") return BlockKind::kMixture;
  return std::nullopt;
}

// The names of the blocks: of a pattern its letters; of a file with neither those of transformers' class.
std::vector<std::string> BlockNames(const HfKeys& keys) {
  std::vector<std::string> names;
  const std::string list = ListKey(keys);
  if (list.empty()) {
    if (!keys.Has(kPattern)) return {"linear_attention", "moe", "full_attention", "mlp"};
    for (const char letter : keys.Text(kPattern)) names.emplace_back(1, letter);
    return names;
  }
  if (!keys.json[list].is_array()) Refuse(keys.path, list, "is not a list of types");
  for (const nlohmann::json& type : keys.json[list])
    names.push_back(type.is_string() ? type.get<std::string>() : type.dump());
  return names;
}

}  // namespace

std::vector<BlockKind> HfBlocks(const HfKeys& keys, int layers) {
  const std::vector<std::string> names = BlockNames(keys);
  const std::string list = ListKey(keys);
  const std::string key = list.empty() ? kPattern : list;
  if (std::ssize(names) != layers)
    Refuse(keys.path, key, fmt::format("has {} blocks for num_hidden_layers = {}", names.size(), layers));
  std::vector<BlockKind> blocks;
  for (size_t l = 0; l < names.size(); ++l) {
    const std::optional<BlockKind> kind = KindOf(names[l]);
    if (!kind) {
      Refuse(keys.path, fmt::format("{}[{}]", key, l),
             fmt::format("= {} is none of {}", nlohmann::json(names[l]).dump(),
                         list.empty() ? "M, *, - and E" : "mamba, attention, mlp and moe"));
    }
    blocks.push_back(*kind);
  }
  return blocks;
}

void CountHfBlocks(const std::string& path, nlohmann::json& config) {
  const HfKeys keys{config, path};
  if (!keys.Has("num_hidden_layers")) config["num_hidden_layers"] = BlockNames(keys).size();
}

std::vector<BlockKind> GgufBlocks(const GgufMetadata& m, const std::string& prefix, const ModelShape& shape) {
  const auto list = [&](const std::string& key) {
    const std::optional<std::vector<int64_t>> values = m.IsArray(key) ? m.Integers(key) : std::nullopt;
    if (!values) Refuse(m.path(), key, "is not a list with a number for each block");
    return *values;
  };
  const std::string ffn_key = prefix + "feed_forward_length";
  const std::string heads_key = prefix + "attention.head_count_kv";
  const std::vector<int64_t> widths = list(ffn_key);
  const std::vector<int64_t> heads = list(heads_key);
  std::vector<BlockKind> blocks;
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    if (widths[l] != 0 && heads[l] != 0) {
      Refuse(
          m.path(), fmt::format("{}[{}]", ffn_key, l),
          fmt::format("= {} beside {}[{}] = {}: a block has one of them", widths[l], heads_key, l, heads[l]));
    }
    const bool mixture = shape.layers[l].mixture.experts > 0;
    blocks.push_back(heads[l] != 0    ? BlockKind::kAttention
                     : widths[l] == 0 ? BlockKind::kState
                     : mixture        ? BlockKind::kMixture
                                      : BlockKind::kFfn);
  }
  return blocks;
}

void KeepOneMixer(const std::vector<BlockKind>& blocks, ModelShape& shape) {
  for (size_t l = 0; l < blocks.size(); ++l) {
    LayerShape& layer = shape.layers[l];
    if (blocks[l] == BlockKind::kFfn || blocks[l] == BlockKind::kMixture) {
      layer = {.rope = kNoRope, .ffn = layer.ffn, .mixture = layer.mixture, .mixer = MixerKind::kNone};
    } else {
      layer.ffn = 0;
      layer.mixture = {};
    }
  }
}

void CheckHfBlocks(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  if (!c.shape.HasStates()) {
    const std::string list = ListKey(keys);
    Refuse(keys.path, list.empty() ? kPattern : list, "has no Mamba block, which is not supported");
  }
  for (const auto& [key, only] :
       {std::pair{"mlp_hidden_act", "relu2"}, std::pair{"mamba_hidden_act", "silu"}}) {
    if (const std::string act = keys.Text(key); act != only)
      Refuse(keys.path, key, fmt::format("= '{}' is not supported ({})", act, only));
  }
  for (const char* key : {"use_bias", "mlp_bias", "mamba_proj_bias"}) {
    if (keys.Flag(key, false)) Refuse(keys.path, key, "= true is not supported");
  }
  if (const int64_t latent = keys.Integer("moe_latent_size").value_or(0); latent != 0)
    Refuse(keys.path, "moe_latent_size", fmt::format("= {}: experts of latents are not supported", latent));
  if (const int64_t groups = read.integer("n_group").value_or(1); groups != 1)
    Refuse(keys.path, "n_group",
           fmt::format("= {}: experts chosen group by group are not supported", groups));
  // What no forward pass reads; the tensors tell whether a convolution has a bias. transformers raises steps
  // to time_step_min in prefill, which llama.cpp does not.
  for (const char* unused : {"expand", "sliding_window", "time_step_min", "mtp_layers_block_type",
                             "num_nextn_predict_layers", "n_shared_experts", "use_conv_bias"})
    keys.Has(unused);
  if (c.shape.HasMixtures()) c.shape.architecture = "nemotron_h_moe";
}

void CheckGgufBlocks(const KeyReader& read, const std::string& prefix, const ModelShape& shape) {
  if (!shape.HasStates()) {
    Refuse(read.path, prefix + "attention.head_count_kv",
           fmt::format("and {}feed_forward_length leave no Mamba block, which is not supported", prefix));
  }
  const std::string latent_key = prefix + "moe_latent_size";
  if (const int64_t latent = read.integer(latent_key).value_or(0); latent != 0)
    Refuse(read.path, latent_key, fmt::format("= {}: experts of latents are not supported", latent));
}

}  // namespace coppice
