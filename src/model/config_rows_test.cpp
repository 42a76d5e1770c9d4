// The metadata of rows of the table that are not Llama's.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"

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

}  // namespace
}  // namespace coppice
