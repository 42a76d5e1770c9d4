// What Gemma 3's files say about positions, layer by layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/config.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Values = std::map<std::string, GgufValue, std::less<>>;

Values With(Values values, const std::string& key, GgufValue value) {
  values[key] = std::move(value);
  return values;
}
Values Without(Values values, const std::string& key) {
  values.erase(key);
  return values;
}
Json With(Json json, const char* key, Json value) {
  json[key] = std::move(value);
  return json;
}
Json With(Json list, size_t index, Json value) {
  list[index] = std::move(value);
  return list;
}

ModelConfig FromGguf(const Values& values) { return ConfigFromGguf(GgufMetadata("m.gguf", values)); }
ModelConfig FromHf(const Json& json) { return ConfigFromHf(json, "folder"); }

// The keys of Gemma 3 270m's file.
Values GemmaValues() {
  return {
      {"general.architecture", std::string("gemma3")},   {"gemma3.block_count", int64_t{18}},
      {"gemma3.embedding_length", int64_t{640}},         {"gemma3.feed_forward_length", int64_t{2048}},
      {"gemma3.attention.head_count", int64_t{4}},       {"gemma3.attention.head_count_kv", int64_t{1}},
      {"gemma3.attention.key_length", int64_t{256}},     {"gemma3.attention.value_length", int64_t{256}},
      {"gemma3.attention.layer_norm_rms_epsilon", 1e-6}, {"gemma3.attention.sliding_window", int64_t{512}},
      {"gemma3.context_length", int64_t{32768}},         {"gemma3.rope.freq_base", 1e6}};
}

TEST(ConfigFromGguf, Gemma3) {
  const ModelConfig c = FromGguf(GemmaValues());
  EXPECT_EQ(c.ffn, FfnKind::kGeGlu);
  EXPECT_TRUE(c.shape.gated_ffn && c.shape.post_norms && c.head_norms);
  EXPECT_EQ(c.shape.layer(0).head_dim, 256);
  EXPECT_EQ(c.embedding_scale, std::sqrt(640.0));
  EXPECT_EQ(c.norm_offset, 0);  // converters add it
  EXPECT_EQ(AttentionScale(c, c.shape.layer(0)), 1.0f / 16);
  for (int l = 0; l < 18; ++l) EXPECT_EQ(c.shape.layer(l).window, l % 6 == 5 ? 0 : 512) << l;
  EXPECT_EQ(c.ropes.front().base, 1e6);
  ASSERT_EQ(c.ropes.size(), 2u);
  EXPECT_EQ(c.ropes[1].base, 1e4);
  EXPECT_EQ(c.ropes[1].dims, 256);
}

TEST(ConfigFromGguf, Gemma3PositionsByLayer) {
  const Values good = GemmaValues();
  Values scaled = With(good, "gemma3.rope.scaling.type", std::string("linear"));
  scaled = With(With(scaled, "gemma3.rope.scaling.factor", 8.0), "gemma3.rope.freq_base_swa", 5e3);
  const ModelConfig c = FromGguf(scaled);
  EXPECT_EQ(c.ropes.front().factor, 8);
  EXPECT_EQ(c.ropes[1].factor, 1);
  EXPECT_EQ(c.ropes[1].base, 5e3);
  EXPECT_EQ(FromGguf(Without(good, "gemma3.rope.freq_base")).ropes.front().base, 1e6);
  // A model whose layers all attend to everything.
  for (const Values& v : {Without(good, "gemma3.attention.sliding_window"),
                          With(good, "gemma3.attention.sliding_window", int64_t{0})}) {
    for (int l = 0; l < 18; ++l) EXPECT_EQ(FromGguf(v).shape.layer(l).window, 0) << l;
  }
  const char* pattern = "gemma3.attention.sliding_window_pattern";
  const ModelShape third = FromGguf(With(good, pattern, int64_t{3})).shape;
  for (int l = 0; l < 18; ++l) EXPECT_EQ(third.layer(l).window, l % 3 == 2 ? 0 : 512) << l;
  std::vector<bool> windowed(18, true);
  windowed[4] = false;
  const auto list = [](std::vector<bool> items) { return std::make_shared<GgufArray>(GgufArray{items, 7}); };
  const ModelShape listed = FromGguf(With(good, pattern, list(windowed))).shape;
  for (int l = 0; l < 18; ++l) EXPECT_EQ(listed.layer(l).window, l == 4 ? 0 : 512) << l;
  windowed.pop_back();
  for (const auto& [values, part] : std::vector<std::pair<Values, const char*>>{
           {With(good, pattern, list(windowed)), "sliding_window_pattern has 17 entries for 18 layers"},
           {With(good, pattern, std::make_shared<GgufArray>(GgufArray{std::vector<int64_t>{1}, 5})),
            "sliding_window_pattern"},
           {With(good, pattern, int64_t{0}), "sliding_window_pattern = 0 is not from 1"},
           {With(good, pattern, int64_t{1} << 40), "sliding_window_pattern = 1099511627776"},
           {With(good, pattern, std::string("six")), "sliding_window_pattern"},
           {With(good, "gemma3.rope.freq_base_swa", 0.0), "freq_base_swa = 0"},
           {With(good, "gemma3.attention.sliding_window", int64_t{-1}), "sliding_window = -1"},
           {With(good, "gemma3.attention.scale", -1.0), "attention.scale = -1"},
           {With(good, "gemma3.final_logit_softcapping", 30.0), "final_logit_softcapping = 30 is not"},
           {With(good, "gemma3.attn_logit_softcapping", 50.0), "attn_logit_softcapping = 50 is not"}}) {
    EXPECT_THAT(ErrorOf([&, v = &values] { FromGguf(*v); }), HasSubstr(part));
  }
}

TEST(ConfigFromGguf, Gemma3QueryScale) {
  const ModelConfig scaled_by_file = FromGguf(With(GemmaValues(), "gemma3.attention.scale", 0.25));
  EXPECT_FLOAT_EQ(AttentionScale(scaled_by_file, scaled_by_file.shape.layer(0)), 0.25f);
  Values largest =
      With(With(GemmaValues(), "gemma3.block_count", int64_t{62}), "gemma3.embedding_length", int64_t{5376});
  largest = With(With(largest, "gemma3.attention.head_count", int64_t{32}), "gemma3.attention.key_length",
                 int64_t{128});
  const ModelConfig c = FromGguf(largest);
  EXPECT_FLOAT_EQ(AttentionScale(c, c.shape.layer(0)), 1 / std::sqrt(168.0f));  // 27b
}

Json GemmaJson() {
  return {{"model_type", "gemma3_text"},
          {"num_hidden_layers", 12},
          {"hidden_size", 640},
          {"intermediate_size", 2048},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 1},
          {"head_dim", 256},
          {"vocab_size", 262144},
          {"max_position_embeddings", 32768},
          {"rms_norm_eps", 1e-6},
          {"query_pre_attn_scalar", 64},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"sliding_window", 512},
          {"rope_theta", 1e6},
          {"rope_local_base_freq", 2e4},
          {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
}

TEST(ConfigFromHf, Gemma3) {
  const ModelConfig c = FromHf(GemmaJson());
  EXPECT_EQ(c.shape.architecture, "gemma3");
  EXPECT_TRUE(c.tied_head && c.head_norms && c.shape.post_norms);
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_EQ(c.embedding_scale, std::sqrt(640.0));
  EXPECT_EQ(AttentionScale(c, c.shape.layer(0)), 0.125f);
  for (int l = 0; l < 12; ++l) EXPECT_EQ(c.shape.layer(l).window, l % 6 == 5 ? 0 : 512) << l;
  EXPECT_EQ(c.ropes.front().base, 1e6);
  EXPECT_EQ(c.ropes.front().factor, 8);
  EXPECT_EQ(c.ropes[1].base, 2e4);
  EXPECT_EQ(c.ropes[1].factor, 1);
  EXPECT_EQ(FromHf(With(GemmaJson(), "sliding_window_pattern", 2)).shape.layer(1).window, 0);
  EXPECT_FALSE(FromHf(With(GemmaJson(), "tie_word_embeddings", false)).tied_head);
}

TEST(ConfigFromHf, Gemma3InNewerFiles) {
  Json j = GemmaJson();
  for (const char* old : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) j.erase(old);
  j["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 3e5}}},
                          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7e3}}}};
  Json types = Json::array();
  for (int l = 0; l < 12; ++l) types.push_back(l == 3 ? "full_attention" : "sliding_attention");
  j["layer_types"] = types;
  const ModelConfig c = FromHf(j);
  EXPECT_EQ(c.ropes.front().base, 3e5);
  EXPECT_EQ(c.ropes.front().factor, 4);
  EXPECT_EQ(c.ropes[1].base, 7e3);
  for (int l = 0; l < 12; ++l) EXPECT_EQ(c.shape.layer(l).window, l == 3 ? 0 : 512) << l;
  const auto parameters = [&](const char* kind, Json value) {
    return With(j, "rope_parameters", With(j["rope_parameters"], kind, std::move(value)));
  };
  Json few = types;
  few.erase(0);
  for (const auto& [json, part] : std::vector<std::pair<Json, const char*>>{
           {With(j, "layer_types", few), "layer_types is not a list of 12 types"},
           {With(j, "layer_types", "full_attention"), "layer_types is not a list"},
           {With(j, "layer_types", With(types, size_t{0}, "chunked_attention")), "layer_types holds a type"},
           {With(j, "layer_types", With(types, size_t{0}, 4)), "layer_types holds a type"},
           {parameters("full_attention", 3), "rope_parameters.full_attention is not an object"},
           {parameters("sliding_attention", {{"rope_type", "default"}, {"rope_theta", 0}}),
            "rope_parameters.sliding_attention.rope_theta"},
           {With(GemmaJson(), "sliding_window_pattern", 0), "sliding_window_pattern = 0"},
           {With(GemmaJson(), "rope_local_base_freq", -1), "rope_local_base_freq = -1"},
           {With(GemmaJson(), "query_pre_attn_scalar", 0), "query_pre_attn_scalar = 0"},
           {With(GemmaJson(), "hidden_activation", "silu"), "hidden_activation = 'silu' is not supported"},
           {With(GemmaJson(), "final_logit_softcapping", 30), "final_logit_softcapping = 30 is not"},
           {With(GemmaJson(), "use_bidirectional_attention", true), "use_bidirectional_attention = true"}}) {
    EXPECT_THAT(ErrorOf([&, json = &json] { FromHf(*json); }), HasSubstr(part));
  }
}

}  // namespace
}  // namespace coppice
