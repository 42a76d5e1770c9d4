// Descriptions of Gemma 4 in both formats, and files whose numbers do not fit each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;

GgufValue Gemma4List(std::vector<int64_t> items) {
  return std::make_shared<GgufArray>(GgufArray{std::move(items), 5});
}

// The sizes of E2B, with 7 layers.
std::map<std::string, GgufValue, std::less<>> Gemma4Values() {
  return {{"general.architecture", std::string("gemma4")},
          {"gemma4.block_count", int64_t{7}},
          {"gemma4.embedding_length", int64_t{1536}},
          {"gemma4.feed_forward_length", Gemma4List({6144, 6144, 6144, 6144, 6144, 12288, 12288})},
          {"gemma4.attention.head_count", int64_t{8}},
          {"gemma4.attention.head_count_kv", int64_t{1}},
          {"gemma4.attention.key_length", int64_t{512}},
          {"gemma4.attention.value_length", int64_t{512}},
          {"gemma4.attention.key_length_swa", int64_t{256}},
          {"gemma4.attention.value_length_swa", int64_t{256}},
          {"gemma4.attention.layer_norm_rms_epsilon", 1e-6},
          {"gemma4.attention.sliding_window", int64_t{512}},
          {"gemma4.attention.sliding_window_pattern",
           std::make_shared<GgufArray>(
               GgufArray{std::vector<bool>{true, true, false, true, false, true, false}, 7})},
          {"gemma4.attention.shared_kv_layers", int64_t{2}},
          {"gemma4.embedding_length_per_layer_input", int64_t{256}},
          {"gemma4.final_logit_softcapping", 30.0},
          {"gemma4.rope.dimension_count", int64_t{512}},
          {"gemma4.rope.dimension_count_swa", int64_t{256}},
          {"gemma4.rope.freq_base", 1e6},
          {"gemma4.rope.freq_base_swa", 1e4},
          {"gemma4.context_length", int64_t{131072}}};
}

ModelConfig ReadGemma4(const std::vector<std::pair<std::string, GgufValue>>& more = {}) {
  auto values = Gemma4Values();
  for (const auto& [key, value] : more) values["gemma4." + key] = value;
  return ConfigFromGguf(GgufMetadata("g.gguf", values));
}

TEST(ConfigOfGemma4, Gguf) {
  const ModelConfig c = ReadGemma4();
  const ModelShape& s = c.shape;
  ASSERT_EQ(s.layer_count(), 5);
  ASSERT_EQ(s.tail.size(), 2u);
  EXPECT_EQ(s.layer(0).head_dim, 256);
  EXPECT_EQ(s.layer(0).window, 512);
  EXPECT_EQ(s.layer(2).head_dim, 512);
  EXPECT_EQ(s.layer(2).window, 0);
  EXPECT_EQ(s.tail[0].keys_of, 3);  // the last layer with a window, and without
  EXPECT_EQ(s.tail[1].keys_of, 4);
  EXPECT_EQ(s.tail[0].ffn, 12288);
  EXPECT_EQ(s.tail[1].head_dim, 512);
  EXPECT_EQ(s.layer_embedding, 256);
  EXPECT_EQ(c.logit_cap, 30);
  EXPECT_EQ(c.attention_scale, 1);
  EXPECT_TRUE(c.head_norms && c.gemma4_layers && s.post_norms);
  EXPECT_EQ(c.norm_offset, 0);
  const RopeConfig& full = c.ropes[static_cast<size_t>(s.layer(2).rope)];
  const RopeConfig& windowed = c.ropes[static_cast<size_t>(s.layer(0).rope)];
  EXPECT_EQ(full.dims, 512);
  EXPECT_EQ(full.base, 1e6);
  EXPECT_EQ(windowed.dims, 256);
  EXPECT_EQ(windowed.base, 1e4);
}

TEST(ConfigOfGemma4, GgufWithExperts) {
  const ModelConfig c = ReadGemma4({{"expert_count", int64_t{128}},
                                    {"expert_used_count", int64_t{8}},
                                    {"expert_feed_forward_length", int64_t{704}},
                                    {"feed_forward_length", int64_t{2112}},
                                    {"attention.shared_kv_layers", int64_t{0}},
                                    {"embedding_length_per_layer_input", int64_t{0}},
                                    {"attention.head_count_kv", Gemma4List({8, 8, 2, 8, 2, 8, 2})}});
  const MixtureShape expected{.experts = 128, .used = 8, .width = 704, .shared_width = 2112};
  EXPECT_EQ(c.shape.layer(3).mixture, expected);
  EXPECT_EQ(c.shape.layer(3).ffn, 0);
  EXPECT_EQ(c.shape.layer(2).kv_heads, 2);
  EXPECT_TRUE(c.shape.tail.empty() && c.router.normalise);
}

TEST(ConfigOfGemma4, BadGguf) {
  const auto all_windowed =
      std::make_shared<GgufArray>(GgufArray{std::vector<bool>{true, true, true, true, true, true, false}, 7});
  const std::vector<std::pair<std::pair<std::string, GgufValue>, std::string>> bad = {
      {{"attention.shared_kv_layers", int64_t{7}}, "shared_kv_layers = 7 is not from 0 to 7 layers less 1"},
      {{"attention.shared_kv_layers", int64_t{-1}}, "shared_kv_layers = -1 is not from 0"},
      {{"attention.sliding_window_pattern", all_windowed}, "layer 6 has no layer of its kind with keys"},
      {{"attention.head_count_kv", Gemma4List({1, 1, 1, 2, 1, 1, 1})},
       "layer 5 attends the keys of layer 3, whose heads have another size"},
      {{"attention.value_length_swa", int64_t{128}},
       "attention.value_length_swa = 128 differs from gemma4.attention.key_length_swa = 256"},
      {{"attention.key_length_swa", int64_t{0}},
       "attention.value_length_swa = 256 differs from gemma4.attention.key_length_swa = 0"},
      {{"embedding_length_per_layer_input", int64_t{-4}},
       "embedding_length_per_layer_input = -4 is not from 0"},
      {{"final_logit_softcapping", -3.0}, "final_logit_softcapping = -3 is not a positive number"},
      {{"rope.dimension_count_swa", int64_t{258}}, "= 258 is not an even number up to the head's 256"},
      {{"attn_logit_softcapping", 50.0}, "attn_logit_softcapping = 50 is not supported"},
  };
  for (const auto& [value, part] : bad) {
    EXPECT_THAT(ErrorOf([&, v = &value] { ReadGemma4({*v}); }), HasSubstr(part));
  }
}

nlohmann::json Gemma4Json() {
  return {{"model_type", "gemma4_text"},
          {"num_hidden_layers", 7},
          {"num_kv_shared_layers", 2},
          {"hidden_size", 1536},
          {"intermediate_size", 6144},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"use_double_wide_mlp", true},
          {"layer_types",  // transformers takes the last for full_attention
           {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
            "sliding_attention", "sliding_attention"}}};
}

ModelConfig ReadGemma4Folder(const nlohmann::json& more) {
  nlohmann::json j = Gemma4Json();
  j.update(more);
  return ConfigFromHf(j, "folder");
}

TEST(ConfigOfGemma4, Folder) {
  const ModelConfig c = ReadGemma4Folder(nlohmann::json::object());
  const ModelShape& s = c.shape;
  ASSERT_EQ(s.layer_count(), 5);
  EXPECT_EQ(s.layer(0).head_dim, 256);
  EXPECT_EQ(s.layer(2).head_dim, 512);
  EXPECT_EQ(s.tail[1].keys_of, 4);
  EXPECT_EQ(s.tail[1].ffn, 12288);
  EXPECT_EQ(s.layer_embedding, 256);
  const RopeConfig& full = c.ropes[static_cast<size_t>(s.layer(2).rope)];
  EXPECT_EQ(full.scaling, RopeConfig::Scaling::kProportional);
  EXPECT_EQ(full.rotating, 0.25);
  EXPECT_EQ(full.base, 1e6);
  // Both forms of what differs by layer.
  const nlohmann::json equal = {{"attention_k_eq_v", true}, {"num_global_key_value_heads", 2}};
  EXPECT_EQ(ReadGemma4Folder(equal).shape.tail.back().kv_heads, 2);
  EXPECT_EQ(ReadGemma4Folder({{"num_global_key_value_heads", 2}}).shape.tail.back().kv_heads, 4);
  const nlohmann::json by_layer = {
      {"per_layer_config", {{"6", {{"head_dim", 64}, {"num_key_value_heads", 2}}}}},
      {"num_kv_shared_layers", 0}};
  EXPECT_EQ(ReadGemma4Folder(by_layer).shape.layer(6).head_dim, 64);
  EXPECT_EQ(ReadGemma4Folder(by_layer).shape.layer(6).kv_heads, 2);
  EXPECT_EQ(ReadGemma4Folder(by_layer).shape.layer(5).head_dim, 256);
  const nlohmann::json nested = {{"model_type", "gemma4"}, {"text_config", Gemma4Json()}};
  EXPECT_EQ(ConfigFromHf(nested, "folder").shape.architecture, "gemma4");
}

TEST(ConfigOfGemma4, BadFolders) {
  const std::vector<std::pair<nlohmann::json, std::string>> bad = {
      {{{"layer_types", nullptr}}, "num_kv_shared_layers = 2: layer 5 has no layer of its kind with keys"},
      {{{"vocab_size_per_layer_input", 99}}, "vocab_size_per_layer_input = 99 differs from vocab_size"},
      {{{"per_layer_config", {{"9", nlohmann::json::object()}}}}, "per_layer_config.9 is none of 7 layers"},
      {{{"per_layer_config", {{"1", {{"head_dim", 0}}}}}}, "per_layer_config.1 gives heads of 0 channels"},
      {{{"per_layer_config", {{"1", {{"sliding_window", 4}}}}}},
       "has sliding_window = 4, which is not supported"},
      {{{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention"},
      {{{"rope_parameters",
         {{"full_attention", {{"rope_type", "proportional"}, {"partial_rotary_factor", 1.5}}}}}},
       "partial_rotary_factor = 1.5 is above 1"},
  };
  for (const auto& [more, part] : bad) {
    EXPECT_THAT(ErrorOf([&, m = &more] { ReadGemma4Folder(*m); }), HasSubstr(part));
  }
}

}  // namespace
}  // namespace coppice
