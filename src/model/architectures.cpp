#include "model/architectures.h"

#include <algorithm>
#include <map>

#include "model/config_keys.h"

namespace coppice {

namespace {

// Folders with several models, whose text model is in text_config.
const std::map<std::string_view, std::string_view>& NestedTypes() {
  static const std::map<std::string_view, std::string_view> types = {{"gemma3", "gemma3_text"},
                                                                     {"gemma4", "gemma4_text"},
                                                                     {"gemma4_unified", "gemma4_text"},
                                                                     {"mistral3", "mistral"},
                                                                     {"muse_glimmer", "muse_glimmer_text"},
                                                                     {"qwen3_5", "qwen3_5_text"},
                                                                     {"qwen3_5_moe", "qwen3_5_moe_text"},
                                                                     {"qwen3_vl", "qwen3_vl_text"},
                                                                     {"qwen3_vl_moe", "qwen3_vl_moe_text"}};
  return types;
}

struct Unsupported {
  std::vector<std::string_view> names;  // of GGUF and of Hugging Face
  const char* reason;
};

// Architectures that people ask for, with what this program lacks for them.
const std::vector<Unsupported>& UnsupportedOnes() {
  static const std::vector<Unsupported> list = {
      {{"phimoe", "glm4moe", "glm4_moe", "dots1", "ernie4_5-moe", "ernie4_5_moe", "bailingmoe", "bailingmoe2",
        "minimax-m2", "minimax_m2", "hunyuan-moe", "arctic", "grok", "dbrx"},
       "its kind of mixture of experts is not supported"},
      {{"deepseek2", "deepseek_v2", "deepseek_v3", "mistral4", "minicpm3", "kimi_k2", "glm4_moe_lite",
        "longcat_flash", "plm"},
       "its attention over latents (MLA) is not supported"},
      {{"deepseek32", "deepseek_v32", "deepseek4", "deepseek_v4", "glm-dsa", "glm_moe_dsa", "glm5"},
       "its attention that an indexer makes sparse is not supported"},
      {{"llama4", "llama4_text"}, "its attention in chunks and its mixture of experts are not supported"},
      {{"gemma3n", "gemma3n_text"}, "its AltUp and Laurel blocks are not supported"},
      {{"gemma2"}, "its softcap inside attention is not supported"},
      {{"qwen3next", "qwen3_next", "qwen4exp", "kimi-linear", "kimi_linear", "olmo_hybrid"},
       "its kind of layers with a recurrent state is not supported"},
      {{"lfm3"}, "its layers of short convolutions are not supported"},
      {{"mamba", "mamba2", "falcon_mamba", "jamba", "falcon-h1", "falcon_h1", "bamba", "plamo2", "zamba2"},
       "its layers with a recurrent state (Mamba) are not supported"},
      {{"bert", "nomic-bert", "modern-bert", "modernbert", "xlm-roberta", "roberta"},
       "an encoder does not generate text"},
      {{"t5", "t5encoder", "bart"}, "models with an encoder and a decoder are not supported"},
  };
  return list;
}

[[noreturn]] void RefuseName(const std::string& name, const std::vector<const char*>& known,
                             const std::string& path, const std::string& key) {
  for (const Unsupported& u : UnsupportedOnes()) {
    if (std::ranges::find(u.names, name) != u.names.end())
      Refuse(path, key, fmt::format("= '{}' is not supported: {}", name, u.reason));
  }
  std::string names;
  for (const char* k : known) names += (names.empty() ? "" : ", ") + std::string(k);
  Refuse(path, key, fmt::format("= '{}' is not supported ({})", name, names));
}

}  // namespace

const std::vector<Architecture>& Architectures() {
  using Presence = MixtureTraits::Presence;
  static const std::vector<Architecture> list = {
      {.gguf = "llama",
       .hf = {{"llama"},
              {"mistral", WindowRule::kEveryLayer},
              {"mixtral",
               WindowRule::kEveryLayer,
               {.experts = "num_local_experts", .width = "intermediate_size"}}},
       .models = "Llama 2 and 3, Mistral, Mistral Small 3, Mixtral, XGen",
       .positions = {.gguf_interleaved = true},
       .mixture = {.presence = Presence::kMaybe}},
      {.gguf = "mistral3",
       .hf = {{"ministral3", WindowRule::kEveryLayer}},
       .models = "Ministral 3, Devstral Small 2",
       .positions = {.gguf_interleaved = true, .query_temperature = true}},
      {.gguf = "qwen2",
       .hf = {{"qwen2", WindowRule::kFromLayer}},
       .models = "Qwen 1.5, 2 and 2.5",
       .qkv_bias = true},
      {.gguf = "qwen3",
       .hf = {{"qwen3", WindowRule::kFromLayer}},
       .models = "Qwen3",
       .head_norm = HeadNorm::kEachHead},
      {.gguf = "qwen3vl",
       .hf = {{"qwen3_vl_text"}},
       .models = "Qwen3-VL (text)",
       .head_norm = HeadNorm::kEachHead},
      {.gguf = "qwen3moe",
       .hf = {{"qwen3_moe",
               WindowRule::kEveryLayerIfUsed,
               {.experts = "num_experts",
                .width = "moe_intermediate_size",
                .may_normalise = true,
                .dense_layers = true}}},
       .models = "Qwen3 30B-A3B and 235B-A22B, Qwen3-Coder",
       .head_norm = HeadNorm::kEachHead,
       .mixture = {.presence = Presence::kAlways, .gguf_ffn_of_row = true}},
      {.gguf = "qwen3vlmoe",
       .hf = {{"qwen3_vl_moe_text",
               WindowRule::kNever,
               {.experts = "num_experts", .width = "moe_intermediate_size", .dense_layers = true}}},
       .models = "Qwen3-VL 30B-A3B and 235B-A22B (text)",
       .head_norm = HeadNorm::kEachHead,
       .mixture = {.presence = Presence::kAlways, .gguf_ffn_of_row = true}},
      {.gguf = "qwen35",
       .hf = {{"qwen3_5_text"}},
       .models = "Qwen3.5, 3.6, 3.7 and 3.8 (dense, text)",
       .head_norm = HeadNorm::kEachHead,
       .gguf_ffn_norm = "post_attention_norm",
       .output_gate = OutputGate::kInQuery,
       .hf_norm_offset = 1,
       .hf_final_norm_offset = 1,
       .state = MixerKind::kGatedDelta,
       .attention_every = 4,
       .positions = {.rope_base = 1e4, .partial_rotary = true}},
      {.gguf = "qwen35moe",
       .hf = {{"qwen3_5_moe_text",
               WindowRule::kNever,
               {.experts = "num_experts",
                .width = "moe_intermediate_size",
                .shared_width = "shared_expert_intermediate_size"}}},
       .models = "Qwen3.5 and 3.6 35B-A3B and larger mixtures (text)",
       .head_norm = HeadNorm::kEachHead,
       .gguf_ffn_norm = "post_attention_norm",
       .output_gate = OutputGate::kInQuery,
       .hf_norm_offset = 1,
       .hf_final_norm_offset = 1,
       .state = MixerKind::kGatedDelta,
       .attention_every = 4,
       .positions = {.rope_base = 1e4, .partial_rotary = true},
       .mixture = {.presence = Presence::kAlways, .shared = MixtureTraits::Shared::kGated}},
      {.gguf = "qwen2moe",
       .hf = {{"qwen2_moe",
               WindowRule::kEvenUpTo,
               {.experts = "num_experts",
                .width = "moe_intermediate_size",
                .shared_width = "shared_expert_intermediate_size",
                .may_normalise = true,
                .dense_layers = true}}},
       .models = "Qwen1.5-MoE, Qwen2-57B-A14B",
       .qkv_bias = true,
       .mixture = {.presence = Presence::kAlways,
                   .shared = MixtureTraits::Shared::kGated,
                   .gguf_normalise = false,
                   .gguf_ffn_of_row = true}},
      {.gguf = "olmoe",
       .hf = {{"olmoe",
               WindowRule::kNever,
               {.experts = "num_experts", .width = "intermediate_size", .may_normalise = true}}},
       .models = "OLMoE",
       .head_norm = HeadNorm::kWholeWidth,
       .mixture = {.presence = Presence::kAlways, .gguf_normalise = false}},
      {.gguf = "gpt-oss",
       .hf = {{"gpt_oss",
               WindowRule::kPattern,
               {.experts = "num_local_experts", .width = "intermediate_size"}}},
       .models = "gpt-oss 20B and 120B",
       .ffn = FfnKind::kSwiGluOai,
       .qkv_bias = true,
       .sinks = true,
       .gguf_ffn_norm = "post_attention_norm",
       .positions = {.global_every = 2, .rope_base = 150000},
       .mixture = {.presence = Presence::kAlways, .router = RouterKind::kTopKSoftmax}},
      {.gguf = "smollm3",
       .hf = {{"smollm3", WindowRule::kNoRopeLayers}},
       .models = "SmolLM3",
       .positions = {.gguf_interleaved = true, .no_rope_every = 4}},
      {.gguf = "olmo2",
       .hf = {{"olmo2"}, {"olmo3", WindowRule::kPattern}},
       .models = "OLMo 2 and 3",
       .head_norm = HeadNorm::kWholeWidth,
       .pre_norms = false,
       .post_norms = true,
       .positions = {.global_every = 4, .own_window_rope = true, .hf_window_rope_base = 5e5}},
      {.gguf = "phi3",
       .hf = {{"phi3", WindowRule::kEveryLayer}},
       .models = "Phi-3, Phi-4, Phi-4-mini",
       .fused = true,
       .positions = {.long_rope = true, .partial_rotary = true}},
      {.gguf = "granite",
       .hf = {{"granite"}},
       .models = "Granite 3 (dense)",
       .multipliers = true,
       .positions = {.gguf_interleaved = true, .finetuned_rope = true}},
      {.gguf = "granitemoe",
       .hf = {{"granitemoe",
               WindowRule::kNever,
               {.experts = "num_local_experts", .width = "intermediate_size"}},
              {"granitemoeshared",
               WindowRule::kNever,
               {.experts = "num_local_experts",
                .width = "intermediate_size",
                .shared_width = "shared_intermediate_size"}}},
       .models = "Granite 3 (mixtures)",
       .multipliers = true,
       .positions = {.gguf_interleaved = true, .finetuned_rope = true},
       .mixture = {.presence = Presence::kAlways,
                   .shared = MixtureTraits::Shared::kPlain,
                   .router = RouterKind::kTopKSoftmax}},
      {.gguf = "granitehybrid",
       .hf = {{"granitemoehybrid",
               WindowRule::kNever,
               {.experts = "num_local_experts",
                .width = "intermediate_size",
                .shared_width = "shared_intermediate_size",
                .may_lack = true}}},
       .models = "Granite 4 (hybrids)",
       .multipliers = true,
       .state = MixerKind::kMamba2,
       .positions = {.gguf_interleaved = true, .hf_rope_if_named = true, .finetuned_rope = true},
       .mixture = {.presence = Presence::kMaybe,
                   .shared = MixtureTraits::Shared::kPlain,
                   .router = RouterKind::kTopKSoftmax}},
      {.gguf = "nemotron_h",
       .hf = {{"nemotron_h",
               WindowRule::kNever,
               {.experts = "n_routed_experts",
                .width = "moe_intermediate_size",
                .shared_width = "moe_shared_expert_intermediate_size",
                .may_normalise = true,
                .scale = "routed_scaling_factor",
                .of_blocks = true}}},
       .models = "Nemotron-H, Nemotron Nano 2",
       .ffn = FfnKind::kReluSquared,
       .gguf_ffn_norm = "attn_norm",
       .state = MixerKind::kMamba2,
       .one_mixer = true,
       .names = NameStyle::kNemotron,
       .positions = {.none = true},
       .mixture = {.presence = Presence::kMaybe,
                   .shared = MixtureTraits::Shared::kPlain,
                   .router = RouterKind::kSigmoidTopK,
                   .gguf_gating = 2,
                   .gguf_ffn_of_row = true}},
      {.gguf = "nemotron_h_moe",
       .hf = {},
       .models = "Nemotron 3 Nano 30B-A3B",
       .ffn = FfnKind::kReluSquared,
       .gguf_ffn_norm = "attn_norm",
       .state = MixerKind::kMamba2,
       .one_mixer = true,
       .names = NameStyle::kNemotron,
       .positions = {.none = true},
       .mixture = {.presence = Presence::kAlways,
                   .shared = MixtureTraits::Shared::kPlain,
                   .router = RouterKind::kSigmoidTopK,
                   .gguf_gating = 2,
                   .gguf_ffn_of_row = true}},
      {.gguf = "lfm2",
       .hf = {{"lfm2"}},
       .models = "LFM2 and LFM2.5",
       .head_norm = HeadNorm::kEachHead,
       .state = MixerKind::kShortConv,
       .names = NameStyle::kLfm2,
       .positions = {.rope_base = 1e6}},
      {.gguf = "lfm2moe",
       .hf = {{"lfm2_moe",
               WindowRule::kNever,
               {.experts = "num_experts",
                .width = "moe_intermediate_size",
                .may_normalise = true,
                .first_dense = "num_dense_layers",
                .bias = "use_expert_bias",
                .scale = "routed_scaling_factor"}}},
       .models = "LFM2 and LFM2.5 8B-A1B",
       .head_norm = HeadNorm::kEachHead,
       .state = MixerKind::kShortConv,
       .names = NameStyle::kLfm2,
       .positions = {.rope_base = 1e6},
       .mixture = {.presence = Presence::kAlways, .router = RouterKind::kSigmoidTopK, .gguf_gating = 2}},
      {.gguf = "gemma3",
       .hf = {{"gemma3_text", WindowRule::kPattern}},
       .models = "Gemma 3 (text)",
       .ffn = FfnKind::kGeGlu,
       .head_norm = HeadNorm::kEachHead,
       .post_norms = true,
       .scaled_embedding = true,
       .hf_norm_offset = 1,
       .hf_final_norm_offset = 1,
       .positions = {.global_every = 6,
                     .rope_base = 1e6,
                     .own_window_rope = true,
                     .window_rope_base = 1e4,
                     .hf_window_rope_base = 1e4}},
      {.gguf = "gemma4",
       .hf = {{"gemma4_text",
               WindowRule::kPattern,
               {.experts = "num_experts",
                .width = "moe_intermediate_size",
                .used = "top_k_experts",
                .enabled = "enable_moe_block"}}},
       .models = "Gemma 4 (text)",
       .ffn = FfnKind::kGeGlu,
       .head_norm = HeadNorm::kEachHead,
       .post_norms = true,
       .scaled_embedding = true,
       .gemma4_layers = true,
       .positions = {.global_every = 6,
                     .rope_base = 1e6,
                     .own_window_rope = true,
                     .window_rope_base = 1e4,
                     .hf_window_rope_base = 1e4,
                     .own_window_heads = true},
       .mixture = {.presence = Presence::kMaybe, .shared = MixtureTraits::Shared::kFfn}},
      {.gguf = "muse-glimmer",
       .hf = {{"muse_glimmer_text", WindowRule::kPatternFromEnd}},
       .models = "Muse Glimmer (text)",
       .embedding_norm = EmbeddingNorm::kWeightless,
       .head_norm = HeadNorm::kEachHead,
       .post_norms = true,
       .post_norm_eps = 1e-8,
       .output_gate = OutputGate::kSeparate,
       .hf_norm_offset = 1,
       .capped_logits = true,
       .positions =
           {.global_every = 4, .own_window_rope = true, .gguf_interleaved = true, .rope_in_windows = true}},
      {.gguf = "bloom",
       .hf = {{"bloom"}},
       .models = "BLOOM",
       .norm = NormKind::kLayer,
       .ffn = FfnKind::kGelu,
       .alibi = true,
       .qkv_bias = true,
       .all_biases = true,
       .embedding_norm = EmbeddingNorm::kStored},
  };
  return list;
}

const Architecture& ArchitectureOfGguf(const std::string& name, const std::string& path,
                                       const std::string& key) {
  std::vector<const char*> known;
  for (const Architecture& row : Architectures()) {
    if (name == row.gguf) return row;
    known.push_back(row.gguf);
  }
  RefuseName(name, known, path, key);
}

HfArchitecture ArchitectureOfHf(const std::string& name, const std::string& path, const std::string& key) {
  std::vector<const char*> known;
  for (const Architecture& row : Architectures()) {
    for (const HfType& type : row.hf) {
      if (name == type.name) return {row, type};
      known.push_back(type.name);
    }
  }
  RefuseName(name, known, path, key);
}

std::string_view NestedTextType(std::string_view name) {
  const auto found = NestedTypes().find(name);
  return found == NestedTypes().end() ? std::string_view() : found->second;
}

}  // namespace coppice
