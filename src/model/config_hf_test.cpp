// What transformers' classes say where a config.json does not, and what is refused.
#include "model/config_hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "model/architectures.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using HfJson = nlohmann::json;

ModelConfig ReadHf(const HfJson& json) { return ConfigFromHf(json, "folder"); }
std::string HfRefusal(const HfJson& json) {
  return ErrorOf([&] { ReadHf(json); });
}

TEST(HfDefaults, EveryTypeOfTheTableHasThem) {
  for (const Architecture& row : Architectures()) {
    for (const HfType& type : row.hf) EXPECT_TRUE(HfDefaults().contains(type.name)) << type.name;
  }
}

// A key of transformers' class that the reader does not ask for would change the model in silence.
TEST(HfDefaults, TheReaderAsksForEveryKeyOfTheClasses) {
  for (const auto& [type, defaults] : HfDefaults().items()) {
    std::set<std::string> asked;
    ReadHfConfig({{"model_type", type}}, "folder", &asked);
    for (const auto& [key, value] : defaults.items()) EXPECT_TRUE(asked.contains(key)) << type << ": " << key;
  }
}

TEST(HfDefaults, AreTakenForMissingKeysAndNotForNull) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "gemma3_text"})
    EXPECT_EQ(ReadHf({{"model_type", type}}).norm_eps, 1e-6) << type;
  for (const char* type : {"olmo2", "olmo3", "phi3", "ministral3"})
    EXPECT_EQ(ReadHf({{"model_type", type}}).norm_eps, 1e-5) << type;
  const ModelConfig gemma = ReadHf({{"model_type", "gemma3_text"}, {"head_dim", 64}});
  EXPECT_EQ(AttentionScale(gemma, gemma.shape.layer(0)), 1.0f / 16);  // of 256, whatever the heads
  EXPECT_EQ(gemma.shape.vocab, 262208);
  const ModelConfig qwen =
      ReadHf({{"model_type", "qwen3"}, {"hidden_size", 1024}, {"num_attention_heads", 32}});
  EXPECT_EQ(qwen.shape.layer(0).head_dim, 128);
  EXPECT_EQ(qwen.shape.layer(0).window, 0);
  EXPECT_EQ(ReadHf({{"model_type", "mistral"}}).shape.layer(0).window, 4096);
  EXPECT_EQ(ReadHf({{"model_type", "mistral"}, {"sliding_window", nullptr}}).shape.layer(0).window, 0);
  EXPECT_EQ(ReadHf({{"model_type", "mistral"}, {"num_key_value_heads", nullptr}}).shape.layer(0).kv_heads,
            32);
  EXPECT_TRUE(ReadHf({{"model_type", "smollm3"}}).tied_head);
  EXPECT_FALSE(ReadHf({{"model_type", "qwen3"}}).tied_head);
  EXPECT_EQ(ReadHf({{"model_type", "smollm3"}}).ropes.front().base, 2e6);
  const ModelConfig ministral = ReadHf({{"model_type", "ministral3"}});
  EXPECT_EQ(ministral.ropes.front().scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(ministral.ropes.front().base, 1e6);
  EXPECT_EQ(ministral.ropes.front().attention_factor, 1);  // mscale = mscale_all_dim
  EXPECT_EQ(ministral.query_temperature, (QueryTemperature{.beta = 0.1, .context = 16384}));
}

TEST(ConfigFromHf, NestedTextConfig) {
  const HfJson text = {{"hidden_size", 64},      {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                       {"num_hidden_layers", 2}, {"head_dim", 32},           {"vocab_size", 100}};
  const ModelConfig qwen =
      ReadHf({{"model_type", "qwen3_vl"}, {"text_config", text}, {"vision_config", {{"depth", 2}}}});
  EXPECT_EQ(qwen.shape.architecture, "qwen3vl");
  EXPECT_EQ(qwen.shape.hidden, 64);
  EXPECT_EQ(qwen.ropes.front().base, 5e5);  // the class's
  EXPECT_TRUE(qwen.head_norms);
  EXPECT_EQ(ReadHf({{"model_type", "mistral3"}, {"text_config", text}}).shape.architecture, "llama");
  HfJson named = text;
  named["model_type"] = "ministral3";
  EXPECT_EQ(ReadHf({{"model_type", "mistral3"}, {"text_config", named}}).shape.architecture, "mistral3");
  EXPECT_EQ(ReadHf({{"model_type", "gemma3"}, {"text_config", text}}).shape.architecture, "gemma3");
  EXPECT_TRUE(
      ReadHf({{"model_type", "qwen3_vl"}, {"text_config", text}, {"tie_word_embeddings", true}}).tied_head);
  EXPECT_THAT(HfRefusal({{"model_type", "qwen3_vl"}}), HasSubstr("text_config is not an object"));
  named["hidden_size"] = -1;
  EXPECT_THAT(HfRefusal({{"model_type", "mistral3"}, {"text_config", named}}),
              HasSubstr("folder/config.json, text_config: hidden_size = -1"));
  named["model_type"] = "mistral4";
  EXPECT_THAT(HfRefusal({{"model_type", "mistral3"}, {"text_config", named}}), HasSubstr("(MLA)"));
}

TEST(ConfigFromHf, UnsupportedArchitecturesGetTheirNameAndTheReason) {
  for (const auto& [type, reason] :
       std::vector<std::pair<const char*, const char*>>{{"deepseek_v3", "latents (MLA)"},
                                                        {"llama4", "chunks"},
                                                        {"gemma3n", "AltUp"},
                                                        {"glm4_moe", "mixture of experts"},
                                                        {"deepseek_v32", "indexer"},
                                                        {"qwen3_next", "recurrent state"},
                                                        {"falcon_h1", "recurrent state"},
                                                        {"gpt_neox", "(llama, mistral, "}}) {
    const std::string message = HfRefusal({{"model_type", type}});
    EXPECT_THAT(message, HasSubstr("model_type = '" + std::string(type) + "' is not supported"));
    EXPECT_THAT(message, HasSubstr(reason));
  }
}

HfJson Changed(HfJson json, const char* key, HfJson value) {
  json[key] = std::move(value);
  return json;
}

TEST(ConfigFromHf, Yarn) {
  const HfJson base = {{"model_type", "llama"}, {"max_position_embeddings", 4096}};
  const HfJson yarn = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 512}};
  const auto rope = [&](const HfJson& object) {
    return ReadHf(Changed(base, "rope_scaling", object)).ropes.front();
  };
  EXPECT_EQ(rope(yarn).attention_factor, 0);
  EXPECT_TRUE(rope(yarn).truncate);
  EXPECT_FALSE(rope(Changed(yarn, "truncate", false)).truncate);
  const double log = std::log(8.0);
  EXPECT_DOUBLE_EQ(rope(Changed(Changed(yarn, "mscale", 0.7), "mscale_all_dim", 0.4)).attention_factor,
                   (0.07 * log + 1) / (0.04 * log + 1));
  EXPECT_EQ(rope(Changed(yarn, "mscale", 0.7)).attention_factor, 0);  // both, or neither counts
  EXPECT_EQ(
      rope(Changed(Changed(Changed(yarn, "mscale", 0.7), "mscale_all_dim", 0.4), "attention_factor", 1.5))
          .attention_factor,
      1.5);
  HfJson without = yarn;
  without.erase("factor");
  EXPECT_EQ(rope(without).factor, 8);  // of the contexts
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(rope(without).original_context, 4096);
  EXPECT_EQ(rope(Changed(yarn, "beta_fast", nullptr)).beta_fast, 32);
  EXPECT_EQ(rope(Changed(yarn, "beta_fast", 0)).beta_fast, 32);
  // A value beside the object goes first, as in Phi 3.
  EXPECT_EQ(ReadHf(Changed(Changed(base, "rope_scaling", yarn), "original_max_position_embeddings", 256))
                .ropes.front()
                .original_context,
            256);
  for (const auto& [object, part] : std::vector<std::pair<HfJson, const char*>>{
           {Changed(yarn, "truncate", 1), "rope_scaling.truncate is not true or false"},
           {Changed(yarn, "mscale", -1), "rope_scaling.mscale"},
           {Changed(yarn, "attention_factor", 0), "rope_scaling.attention_factor"},
           {Changed(yarn, "partial_rotary_factor", 0.5), "partial_rotary_factor = 0.5"},
           {Changed(yarn, "attn_factor", 2), "rope_scaling.attn_factor is not supported"},
           {{{"rope_type", "llama3"}}, "rope_scaling.factor is missing"},
           {{{"rope_type", "dynamic"}, {"factor", 2}}, "= 'dynamic' is not supported"},
           {{{"rope_type", "longrope"}, {"factor", 2}}, "rope_scaling.short_factor is missing"}})
    EXPECT_THAT(HfRefusal(Changed(base, "rope_scaling", object)), HasSubstr(part));
}

TEST(ConfigFromHf, LongRope) {
  HfJson phi = {{"model_type", "phi3"},         {"hidden_size", 64},
                {"num_attention_heads", 4},     {"max_position_embeddings", 64},
                {"partial_rotary_factor", 0.5}, {"original_max_position_embeddings", 16}};
  EXPECT_EQ(ReadHf(phi).ropes.front().dims, 8);
  EXPECT_FALSE(KeysDependOnLength(ReadHf(phi), 64));
  const HfJson scaling = {
      {"type", "longrope"}, {"short_factor", {1, 1, 1, 2}}, {"long_factor", {1, 2, 3, 4}}};
  const ModelConfig c = ReadHf(Changed(phi, "rope_scaling", scaling));
  EXPECT_EQ(c.ropes.front().original_context, 16);
  EXPECT_EQ(c.ropes.front().factor, 4);
  EXPECT_EQ(c.ropes.front().long_factors, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(KeysDependOnLength(c, 17));
  EXPECT_FALSE(KeysDependOnLength(c, 16));
  for (const auto& [key, value, part] : std::vector<std::tuple<const char*, HfJson, const char*>>{
           {"long_factor", {1, 2}, "long_factor is not a list of 4 numbers"},
           {"short_factor", {1, 2, 1e-60, 1}, "short_factor holds a value that is not positive"},
           {"short_factor", {1, 2, 0, 1}, "short_factor holds a value that is not positive"},
           {"short_factor", nullptr, "short_factor is missing"}})
    EXPECT_THAT(HfRefusal(Changed(phi, "rope_scaling", Changed(scaling, key, value))), HasSubstr(part));
  EXPECT_THAT(HfRefusal(Changed(phi, "partial_rotary_factor", 1.5)),
              HasSubstr("partial_rotary_factor = 1.5"));
  EXPECT_THAT(HfRefusal(Changed(phi, "partial_rotary_factor", 0.2)),
              HasSubstr("partial_rotary_factor = 3 is not"));
}

TEST(ConfigFromHf, LayersWithoutRopeAndWindows) {
  const HfJson smol = {{"model_type", "smollm3"}, {"num_hidden_layers", 8}};
  const ModelShape usual = ReadHf(smol).shape;
  for (int l = 0; l < 8; ++l) {
    EXPECT_EQ(usual.layer(l).rope, l % 4 == 3 ? kNoRope : 0) << l;
    EXPECT_EQ(usual.layer(l).window, 0);
  }
  EXPECT_EQ(ReadHf(Changed(smol, "no_rope_layer_interval", 2)).shape.layer(1).rope, kNoRope);
  HfJson listed =
      Changed(smol, "no_rope_layers", {0, 1, 1, 1, 1, 1, 1, 1, 1});  // one more than there are layers
  EXPECT_EQ(ReadHf(listed).shape.layer(0).rope, kNoRope);
  EXPECT_EQ(ReadHf(listed).shape.layer(3).rope, 0);
  listed["use_sliding_window"] = true;
  listed["sliding_window"] = 7;
  EXPECT_EQ(ReadHf(listed).shape.layer(0).window, 7);
  EXPECT_EQ(ReadHf(listed).shape.layer(1).window, 0);
  EXPECT_THAT(HfRefusal(Changed(smol, "no_rope_layers", {0, 1})),
              HasSubstr("no_rope_layers is not a list of 8"));
  HfJson qwen = {{"model_type", "qwen3"},
                 {"num_hidden_layers", 2},
                 {"sliding_window", 9},
                 {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_THAT(HfRefusal(qwen), HasSubstr("use_sliding_window"));
  EXPECT_EQ(ReadHf(Changed(qwen, "use_sliding_window", true)).shape.layer(1).window, 9);
  EXPECT_EQ(ReadHf({{"model_type", "llama"}, {"sliding_window", 9}}).shape.layer(0).window, 0);
  const ModelConfig olmo = ReadHf({{"model_type", "olmo3"}});
  EXPECT_EQ(olmo.shape.layer(2).window, 4096);
  EXPECT_EQ(olmo.shape.layer(3).window, 0);
  EXPECT_FALSE(olmo.pre_norms);
}

TEST(ConfigFromHf, MuseGlimmer) {
  const HfJson text = {{"num_hidden_layers", 6}, {"rope_parameters", {{"rope_theta", 5e5}}}};
  const HfJson folder = {{"model_type", "muse_glimmer"}, {"text_config", text}};
  const ModelConfig c = ReadHf(folder);
  EXPECT_EQ(c.shape.architecture, "muse-glimmer");
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_EQ(c.final_norm_offset, 0);
  EXPECT_EQ(c.hf_query_norm, 3.87);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.post_norm_eps, 1e-8);
  EXPECT_EQ(c.logit_scale, 0.19611613513818404);
  EXPECT_EQ(c.logit_cap, 20);
  EXPECT_EQ(c.ropes.front().base, 5e5);
  for (int l = 0; l < 6; ++l) {  // counted from the last one
    EXPECT_EQ(c.shape.layer(l).window, l % 4 == 1 ? 0 : 2048) << l;
    EXPECT_EQ(c.shape.layer(l).rope, l % 4 == 1 ? kNoRope : 0) << l;
    EXPECT_TRUE(c.shape.layer(l).output_gate);
  }
  const auto with = [&](const char* key, HfJson value) {
    return Changed(folder, "text_config", Changed(text, key, std::move(value)));
  };
  HfJson kinds = std::vector<std::string>(6, "sliding_attention");
  kinds[0] = "full_attention";
  EXPECT_EQ(ReadHf(with("layer_types", kinds)).shape.layer(0).window, 0);
  EXPECT_EQ(ReadHf(with("layer_types", kinds)).shape.layer(1).window, 2048);
  EXPECT_EQ(ReadHf(with("layer_types", kinds)).shape.layer(1).rope, kNoRope);  // the lists are two
  const ModelConfig listed = ReadHf(with("layer_rope_theta", {0, 5e5, 5e5, 0.0, 7, 0, 1}));
  for (int l = 0; l < 6; ++l) EXPECT_EQ(listed.shape.layer(l).rope, l % 3 == 0 || l == 5 ? kNoRope : 0) << l;
  for (const auto& [key, value, part] : std::vector<std::tuple<const char*, HfJson, const char*>>{
           {"layer_rope_theta", {1, 2}, "layer_rope_theta is not a list of 6 numbers"},
           {"layer_rope_theta",
            {1, 2, 3, 4, nullptr, 6},
            "layer_rope_theta holds a value that is not a number"},
           {"layer_types", {"full_attention"}, "layer_types is not a list of 6 types"},
           {"sliding_window", nullptr, "sliding_window is missing"},
           {"final_logit_softcapping", 0, "final_logit_softcapping = 0"},
           {"final_logit_softcapping", nullptr, "final_logit_softcapping is missing"},
           {"output_multiplier", -1, "output_multiplier = -1"},
           {"qk_scale_factor", 0, "qk_scale_factor = 0"},
           {"post_norm_eps", 0, "post_norm_eps = 0"},
           {"hidden_activation", "gelu", "hidden_activation = 'gelu' is not supported (silu)"},
           {"attn_logit_softcapping", 50, "attn_logit_softcapping = 50 is not supported"},
           {"num_experts", 4, "num_experts = 4 is not supported"}})
    EXPECT_THAT(HfRefusal(with(key, value)), HasSubstr(part));
}

TEST(ConfigFromHf, GranitesMultipliers) {
  const HfJson granite = {{"model_type", "granite"},    {"embedding_multiplier", 12.0},
                          {"residual_multiplier", 0.5}, {"attention_multiplier", 0.1},
                          {"logits_scaling", 8.0},      {"rms_norm_eps", 1e-5}};
  const ModelConfig c = ReadHf(granite);
  EXPECT_EQ(c.embedding_scale, 24);  // the stream is in units of the residual multiplier
  EXPECT_EQ(c.norm_eps, 4e-5);
  EXPECT_EQ(c.logit_scale, 0.125);
  EXPECT_EQ(AttentionScale(c, c.shape.layer(0)), 0.1f);
  for (const char* key :
       {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    EXPECT_THAT(HfRefusal(Changed(granite, key, 0)), HasSubstr(std::string(key) + " = 0")) << key;
    EXPECT_THAT(HfRefusal({{"model_type", "llama"}, {key, 3}}), HasSubstr(std::string(key) + " = 3 is not"));
  }
  EXPECT_THAT(HfRefusal(Changed(granite, "residual_multiplier", 1e-30)),
              HasSubstr("is not from 1e-06 to 1e+06"));
  EXPECT_EQ(ReadHf({{"model_type", "llama"}, {"residual_multiplier", 1.0}}).embedding_scale, 1);
  EXPECT_THAT(HfRefusal({{"model_type", "llama"}, {"num_local_experts", 8}}),
              HasSubstr("num_local_experts = 8"));
}

}  // namespace
}  // namespace coppice
