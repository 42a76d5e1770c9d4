#include "model/config_hf.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "model/architectures.h"
#include "model/config_blocks.h"
#include "model/config_gemma4.h"
#include "model/config_keys.h"
#include "model/config_mixture.h"
#include "model/config_recurrent.h"
#include "model/config_rope.h"
#include "model/config_shape.h"
#include "model/hf_defaults.h"

namespace coppice {

namespace {

// Keys of other architectures. A file that has one with another value than these is not what its model_type
// says, whatever transformers makes of it.
const nlohmann::json& OthersKeys() {
  static const nlohmann::json keys = {{"num_experts", 0},
                                      {"num_local_experts", 0},
                                      {"n_routed_experts", 0},
                                      {"n_shared_experts", 0},
                                      {"num_shared_experts", 0},
                                      {"shared_expert_intermediate_size", 0},
                                      {"shared_intermediate_size", 0},
                                      {"n_group", 1},
                                      {"topk_group", 1},
                                      {"routed_scaling_factor", 1},
                                      {"first_k_dense_replace", 0},
                                      {"moe_layer_freq", 1},
                                      {"kv_lora_rank", 0},
                                      {"hidden_size_per_layer_input", 0},
                                      {"clip_qkv", 0},
                                      {"logit_scale", 1},
                                      {"embedding_multiplier", 1},
                                      {"residual_multiplier", 1},
                                      {"attention_multiplier", 1},
                                      {"logits_scaling", 1},
                                      {"attn_logit_softcapping", 0},
                                      {"final_logit_softcapping", 0}};
  return keys;
}

void RefuseOthersKeys(const HfKeys& keys, const std::set<std::string>& read) {
  for (const auto& [key, neutral] : OthersKeys().items()) {
    if (read.contains(key) || !keys.Has(key)) continue;
    const nlohmann::json& value = keys.json[key];
    if (!value.is_number() || value.get<double>() != neutral.get<double>())
      Refuse(keys.path, key, fmt::format("= {} is not supported for this model_type", value.dump()));
  }
}

// BLOOM names its sizes after GPT-2; older files have other names, which transformers takes as well.
void RenameBloom(nlohmann::json& j) {
  for (const auto& [old, name] :
       {std::pair{"num_hidden_layers", "n_layer"}, std::pair{"num_attention_heads", "n_head"},
        std::pair{"n_embed", "hidden_size"}}) {
    if (j.contains(old) && !j.contains(name)) j[name] = j[old];
  }
}

// The config with the values of transformers' class for the keys that it lacks.
nlohmann::json WithDefaults(const nlohmann::json& given, const std::string& type, const std::string& path,
                            bool mixture) {
  nlohmann::json j = given;
  if (type == "bloom") RenameBloom(j);
  if (type == "nemotron_h") CountHfBlocks(path, j);
  if (mixture) RenameExperts(j);
  for (const auto& [key, value] : HfDefaults().at(type).items()) {
    if (!j.contains(key)) j[key] = value;
  }
  return j;
}

void ReadBloom(const HfKeys& keys, const KeyReader& read, ModelConfig& c) {
  ReadShape(read,
            {"n_layer", "hidden_size", "n_inner", "n_head", "", "", "vocab_size", "seq_length",
             "layer_norm_epsilon"},
            4, c);
  if (keys.Flag("apply_residual_connection_post_layernorm", false))
    Refuse(keys.path, "apply_residual_connection_post_layernorm", "= true is not supported");
}

// The key of an FFN's width.
std::string HfFfnKey(const HfKeys& keys, const HfArchitecture& architecture) {
  if (architecture.row.state == MixerKind::kMamba2 && !architecture.row.one_mixer)
    return "shared_intermediate_size";
  if (architecture.row.state == MixerKind::kShortConv && keys.Has("block_ff_dim")) return "block_ff_dim";
  // Some types have no FFN but the experts.
  return keys.Has("intermediate_size") ? "intermediate_size" : architecture.type.mixture.width;
}

void ReadLlamaKin(const HfKeys& keys, const KeyReader& read, const HfArchitecture& architecture,
                  ModelConfig& c) {
  const Architecture& row = architecture.row;
  ReadShape(read,
            {"num_hidden_layers", "hidden_size", HfFfnKey(keys, architecture), "num_attention_heads",
             "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
             row.names == NameStyle::kLfm2       ? "norm_eps"
             : row.names == NameStyle::kNemotron ? "layer_norm_epsilon"
                                                 : "rms_norm_eps"},
            std::nullopt, c);
  ReadHfMixture(keys, read, architecture.type.mixture, row.mixture, c);
  ReadHfPositions(keys, read, row.positions, architecture.type.windows, c);
  SetOutputGates(row, c);
  ReadHfMixers(keys, read, row, c);
  const nlohmann::json& known = HfDefaults().at(architecture.type.name);
  const bool gelu = row.ffn == FfnKind::kGeGlu;
  const char* key = known.contains("hidden_activation") ? "hidden_activation" : "hidden_act";
  const char* supported = gelu ? "gelu_pytorch_tanh" : "silu";
  if (const std::string act = keys.Text(key); !act.empty() && act != supported)
    Refuse(keys.path, key, fmt::format("= '{}' is not supported ({})", act, supported));
  if (known.contains("qkv_bias")) c.qkv_bias = keys.Flag("qkv_bias", true);
  const bool may_lack = known.contains("attention_bias");  // also where the row of the table has biases
  c.qkv_bias = (c.qkv_bias && !may_lack) || keys.Flag("attention_bias", false);
  c.ffn_biases = keys.Flag("mlp_bias", false);
  if (row.gemma4_layers) return ReadHfGemma4(keys, read, c);
  if (keys.Flag("use_bidirectional_attention", false))
    Refuse(keys.path, "use_bidirectional_attention", "= true is not supported");
  RefuseSoftcap(read, "attn_logit_softcapping");
  if (!row.capped_logits) RefuseSoftcap(read, "final_logit_softcapping");
  if (row.capped_logits) ReadLogits(read, {"output_multiplier", "final_logit_softcapping"}, c);
  if (known.contains("post_norm_eps")) c.post_norm_eps = read.Positive("post_norm_eps", row.post_norm_eps);
  if (known.contains("qk_scale_factor")) c.hf_query_norm = ReadMultiplier(read, "qk_scale_factor");
  if (row.ffn == FfnKind::kSwiGluOai) {
    for (const auto& [name, only] : {std::pair{"swiglu_alpha", 1.702}, std::pair{"swiglu_limit", 7.0}}) {
      const double value = read.number(name).value_or(only);
      if (value != only) Refuse(keys.path, name, fmt::format("= {} is not supported ({})", value, only));
    }
  }
  if (row.scaled_embedding) {  // Gemma
    c.embedding_scale = std::sqrt(static_cast<double>(c.shape.hidden));
    c.attention_scale = 1 / std::sqrt(read.Positive("query_pre_attn_scalar", 1));
  }
  if (row.multipliers) {
    ReadMultipliers(
        read, {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}, c);
  }
}

// One model's part of a config.json; `path` names it. `tied`: what the whole folder says of the head.
ModelConfig ReadText(const nlohmann::json& given, const std::string& type, const std::string& path,
                     std::optional<bool> tied, std::set<std::string>& asked) {
  const HfArchitecture architecture = ArchitectureOfHf(type, path, "model_type");
  const Architecture& row = architecture.row;
  const nlohmann::json merged = WithDefaults(given, type, path, architecture.type.mixture.experts != nullptr);
  const HfKeys keys{merged, path, &asked};
  const KeyReader read{path, [&](const std::string& k) { return keys.Integer(k); },
                       [&](const std::string& k) { return keys.Number(k); },
                       [&](const std::string& k) { return keys.Integers(k); }};
  ModelConfig c;
  ApplyArchitecture(row, c);
  c.hf_names = true;
  c.norm_offset = row.hf_norm_offset;
  c.final_norm_offset = row.hf_final_norm_offset;
  if (row.alibi) {
    ReadBloom(keys, read, c);
  } else {
    ReadLlamaKin(keys, read, architecture, c);
  }
  c.shape.vocab = read.Count("vocab_size", limits::kMaxVocab);
  const char* tie =
      row.names == NameStyle::kLfm2 && keys.Has("tie_embedding") ? "tie_embedding" : "tie_word_embeddings";
  c.tied_head = tied.value_or(keys.Flag(tie, false));
  const std::set<std::string> of_reader = asked;
  RefuseOthersKeys(keys, of_reader);
  return c;
}

}  // namespace

const nlohmann::json& HfDefaults() {
  static const nlohmann::json defaults = nlohmann::json::parse(kHfDefaults);
  return defaults;
}

ModelConfig ReadHfConfig(const nlohmann::json& j, const std::string& folder, std::set<std::string>* asked) {
  std::set<std::string> own;
  std::set<std::string>& of_reader = asked == nullptr ? own : *asked;
  const HfKeys keys{j, folder + "/config.json"};
  const std::string type = keys.Text("model_type");
  const std::string_view nested = NestedTextType(type);
  if (nested.empty()) return ReadText(j, type, keys.path, std::nullopt, of_reader);
  if (!keys.Has("text_config") || !j["text_config"].is_object())
    Refuse(keys.path, "text_config", fmt::format("is not an object, which model_type = '{}' needs", type));
  const HfKeys text{j["text_config"], keys.path + ", text_config"};
  const std::string own_type = text.Has("model_type") ? text.Text("model_type") : std::string(nested);
  // The folder's own key counts. Without it, a folder without a head's matrix ties the head.
  const bool tied = keys.Flag("tie_word_embeddings", text.Flag("tie_word_embeddings", true));
  return ReadText(text.json, own_type, text.path, tied, of_reader);
}

ModelConfig ConfigFromHf(const nlohmann::json& j, const std::string& folder) {
  return ReadHfConfig(j, folder, nullptr);
}

}  // namespace coppice
