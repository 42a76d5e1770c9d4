// The metadata of rows of the table that are not Llama's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "test_files.h"

namespace coppice {
namespace {

using RowValues = std::map<std::string, GgufValue, std::less<>>;

RowValues ValuesOf(const std::string& row, const std::vector<std::pair<std::string, GgufValue>>& more = {}) {
  RowValues v = {{"general.architecture", row},
                 {row + ".block_count", int64_t{16}},
                 {row + ".embedding_length", int64_t{2048}},
                 {row + ".feed_forward_length", int64_t{8192}},
                 {row + ".attention.head_count", int64_t{32}},
                 {row + ".attention.head_count_kv", int64_t{8}}};
  for (const auto& [key, value] : more) v[row + "." + key] = value;
  return v;
}

ModelConfig ConfigOfRow(const std::string& row,
                        const std::vector<std::pair<std::string, GgufValue>>& more = {}) {
  return ConfigFromGguf(GgufMetadata("m.gguf", ValuesOf(row, more)));
}

TEST(ConfigOfRows, Gguf) {
  const ModelConfig qwen = ConfigOfRow("qwen3", {{"attention.key_length", int64_t{128}}});
  EXPECT_TRUE(qwen.head_norms);
  EXPECT_FALSE(qwen.whole_norms || qwen.qkv_bias || qwen.ropes.front().interleaved);
  EXPECT_EQ(qwen.shape.layer(0).head_dim, 128);
  const ModelConfig smol = ConfigOfRow("smollm3");
  for (int l = 0; l < 16; ++l) EXPECT_EQ(smol.shape.layer(l).rope, l % 4 == 3 ? kNoRope : 0) << l;
  std::vector<std::pair<std::string, GgufValue>> keys = {
      {"residual_scale", 0.25}, {"logit_scale", 4.0}, {"embedding_scale", 6.0}, {"attention.scale", 0.5}};
  const ModelConfig granite = ConfigOfRow("granite", keys);
  EXPECT_EQ(granite.embedding_scale, 24);
  EXPECT_EQ(granite.logit_scale, 0.25);
  EXPECT_EQ(AttentionScale(granite, granite.shape.layer(0)), 0.5f);
  keys.emplace_back("rope.scaling.finetuned", false);
  EXPECT_EQ(ConfigOfRow("granite", keys).shape.layer(3).rope, kNoRope);
  keys = {{"rope.scaling.type", std::string("yarn")},
          {"rope.scaling.factor", 16.0},
          {"rope.scaling.original_context_length", int64_t{16384}}};
  EXPECT_EQ(ConfigOfRow("mistral3", keys).query_temperature.beta, 0);
  EXPECT_EQ(ConfigOfRow("mistral3", keys).ropes.front().attention_factor, 0);
  keys.emplace_back("attention.temperature_scale", 0.1);
  keys.emplace_back("rope.scaling.yarn_log_multiplier", 1.0);
  const ModelConfig mistral = ConfigOfRow("mistral3", keys);
  EXPECT_EQ(mistral.query_temperature, (QueryTemperature{.beta = 0.1, .context = 16384}));
  EXPECT_DOUBLE_EQ(mistral.ropes.front().attention_factor, 1);
  const ModelConfig olmo = ConfigOfRow("olmo2", {{"attention.sliding_window", int64_t{4096}},
                                                 {"rope.scaling.type", std::string("yarn")},
                                                 {"rope.scaling.yarn_attn_factor", 1.25},
                                                 {"rope.scaling.factor", 8.0}});
  EXPECT_EQ(olmo.shape.layer(0).window, 4096);
  EXPECT_EQ(olmo.shape.layer(3).window, 0);
  EXPECT_EQ(olmo.ropes[0].attention_factor, 1.25);
  EXPECT_EQ(olmo.ropes[1].scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(olmo.ropes[1].base, olmo.ropes[0].base);
  EXPECT_TRUE(olmo.whole_norms && olmo.shape.post_norms);
  EXPECT_FALSE(olmo.pre_norms);
  EXPECT_EQ(ConfigOfRow("olmo2").ropes.size(), 1u);
}

std::vector<std::pair<std::string, GgufValue>> MuseValues() {
  return {{"attention.sliding_window", int64_t{2048}},
          {"logit_scale", 0.25},
          {"final_logit_softcapping", 20.0},
          {"rope.freq_base", 5e5},
          {"attention.layer_norm_rms_epsilon", 1e-5}};
}

TEST(ConfigOfRows, MuseGlimmer) {
  const ModelConfig c = ConfigOfRow("muse-glimmer", MuseValues());
  EXPECT_TRUE(c.head_norms && c.shape.post_norms && c.pre_norms);
  EXPECT_EQ(c.embedding_norm, EmbeddingNorm::kWeightless);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.post_norm_eps, 1e-8);
  EXPECT_EQ(c.logit_scale, 0.25);
  EXPECT_EQ(c.logit_cap, 20);
  EXPECT_EQ(c.norm_offset, 0);
  for (int l = 0; l < 16; ++l) {
    const LayerShape& layer = c.shape.layer(l);
    EXPECT_TRUE(layer.output_gate);
    EXPECT_EQ(layer.window, l % 4 == 3 ? 0 : 2048) << l;
    if (l % 4 == 3) {
      EXPECT_EQ(layer.rope, kNoRope) << l;
    } else {
      EXPECT_EQ(c.ropes[static_cast<size_t>(layer.rope)].base, 5e5) << l;
      EXPECT_TRUE(c.ropes[static_cast<size_t>(layer.rope)].interleaved) << l;
    }
  }
  auto more = MuseValues();
  more.emplace_back("rope.freq_base_swa", 1e4);
  more.emplace_back("attention.sliding_window_pattern", int64_t{2});
  more.emplace_back("final_logit_softcapping", 0.0);
  const ModelConfig other = ConfigOfRow("muse-glimmer", more);
  EXPECT_EQ(other.shape.layer(1).rope, kNoRope);
  EXPECT_EQ(other.ropes[static_cast<size_t>(other.shape.layer(2).rope)].base, 1e4);
  EXPECT_EQ(other.logit_cap, 0);
}

TEST(ConfigOfRows, MuseGlimmerRefusals) {
  const auto refusal = [](const char* key, GgufValue value) {
    auto values = MuseValues();
    values.emplace_back(key, std::move(value));
    return ErrorOf([&] { ConfigOfRow("muse-glimmer", values); });
  };
  const auto without = [](std::string_view key) {
    auto values = MuseValues();
    std::erase_if(values, [&](const auto& entry) { return entry.first == key; });
    return ErrorOf([&] { ConfigOfRow("muse-glimmer", values); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(without("attention.sliding_window"),
              HasSubstr("muse-glimmer.attention.sliding_window is missing"));
  EXPECT_THAT(without("logit_scale"), HasSubstr("muse-glimmer.logit_scale is missing"));
  EXPECT_EQ(without("final_logit_softcapping"), "no error");
  EXPECT_THAT(refusal("attention.sliding_window", int64_t{0}),
              HasSubstr("sliding_window = 0 is out of range"));
  EXPECT_THAT(refusal("logit_scale", -1.0), HasSubstr("muse-glimmer.logit_scale = -1"));
  EXPECT_THAT(refusal("final_logit_softcapping", -2.0), HasSubstr("final_logit_softcapping = -2"));
  EXPECT_THAT(refusal("attn_logit_softcapping", 50.0), HasSubstr("attn_logit_softcapping = 50 is not"));
  EXPECT_THAT(refusal("attention.sliding_window_pattern",
                      std::make_shared<GgufArray>(GgufArray{std::vector<bool>(15, true), 7})),
              HasSubstr("sliding_window_pattern has 15 entries for 16 layers"));
  EXPECT_THAT(refusal("embedding_scale", 2.0), HasSubstr("embedding_scale = 2 is not supported"));
  EXPECT_THAT(ErrorOf([] {
                ConfigOfRow("llama", {{"logit_scale", 2.0}});
              }),
              HasSubstr("llama.logit_scale = 2 is not supported"));
  EXPECT_THAT(ErrorOf([] {
                ConfigOfRow("qwen3", {{"final_logit_softcapping", 2.0}});
              }),
              HasSubstr("qwen3.final_logit_softcapping = 2 is not supported"));
}

}  // namespace
}  // namespace coppice
