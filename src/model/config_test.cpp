#include "model/config.h"
#include "test_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace coppice::config_test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Values = std::map<std::string, GgufValue, std::less<>>;

// ---- GGUF

Values LlamaValues() {
  return {{"general.architecture", std::string("llama")},
          {"general.name", std::string("a llama")},
          {"llama.block_count", int64_t{16}},
          {"llama.embedding_length", int64_t{2048}},
          {"llama.feed_forward_length", int64_t{8192}},
          {"llama.attention.head_count", int64_t{32}},
          {"llama.attention.head_count_kv", int64_t{8}},
          {"llama.attention.layer_norm_rms_epsilon", 1e-6},
          {"llama.context_length", int64_t{131072}},
          {"llama.vocab_size", int64_t{128256}},
          {"llama.rope.dimension_count", int64_t{64}},
          {"llama.rope.freq_base", 500000.0}};
}

ModelConfig FromGguf(const Values& values) { return ConfigFromGguf(GgufMetadata("m.gguf", values)); }

Values With(Values values, const std::string& key, GgufValue value) {
  values[key] = std::move(value);
  return values;
}
Values Without(Values values, const std::string& key) {
  values.erase(key);
  return values;
}

TEST(ConfigFromGguf, Llama) {
  const ModelConfig c = FromGguf(LlamaValues());
  EXPECT_EQ(c.shape.architecture, "llama");
  EXPECT_EQ(c.shape.name, "a llama");
  EXPECT_EQ(c.shape.layer_count(), 16);
  EXPECT_EQ(c.shape.hidden, 2048);
  EXPECT_EQ(c.shape.layer(0).ffn, 8192);
  EXPECT_EQ(c.shape.layer(0).heads, 32);
  EXPECT_EQ(c.shape.layer(0).kv_heads, 8);
  EXPECT_EQ(c.shape.layer(0).head_dim, 64);  // hidden / heads
  EXPECT_TRUE(c.shape.gated_ffn);
  EXPECT_EQ(c.shape.layer(0).window, 0);
  EXPECT_EQ(c.context, 131072);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.norm, NormKind::kRms);
  EXPECT_EQ(c.ffn, FfnKind::kSwiGlu);
  EXPECT_FALSE(c.shape.alibi);
  EXPECT_TRUE(c.ropes.front().interleaved);
  EXPECT_EQ(c.ropes.front().base, 500000);
  EXPECT_EQ(c.ropes.front().scaling, RopeConfig::Scaling::kNone);
  EXPECT_FALSE(c.qkv_bias);
}

TEST(ConfigFromGguf, DefaultsOfAbsentKeys) {
  Values v = LlamaValues();
  for (const char* key :
       {"general.name", "llama.attention.head_count_kv", "llama.context_length", "llama.rope.dimension_count",
        "llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"}) {
    v.erase(key);
  }
  const ModelConfig c = FromGguf(v);
  EXPECT_EQ(c.shape.layer(0).kv_heads, 32);
  EXPECT_EQ(c.context, 2048);
  EXPECT_EQ(c.ropes.front().dims, 64);
  EXPECT_EQ(c.ropes.front().base, 10000);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(FromGguf(With(v, "llama.attention.key_length", int64_t{128})).shape.layer(0).head_dim, 128);
  EXPECT_EQ(FromGguf(With(v, "llama.attention.sliding_window", int64_t{4096})).shape.layer(0).window, 4096);
}

TEST(ConfigFromGguf, Qwen2AndBloom) {
  Values v = {{"general.architecture", std::string("qwen2")}, {"qwen2.block_count", int64_t{2}},
              {"qwen2.embedding_length", int64_t{64}},        {"qwen2.feed_forward_length", int64_t{96}},
              {"qwen2.attention.head_count", int64_t{8}},     {"qwen2.attention.head_count_kv", int64_t{2}}};
  const ModelConfig qwen = FromGguf(v);
  EXPECT_TRUE(qwen.qkv_bias);
  EXPECT_FALSE(qwen.all_biases);
  EXPECT_FALSE(qwen.ropes.front().interleaved);
  v = {{"general.architecture", std::string("bloom")}, {"bloom.block_count", int64_t{2}},
       {"bloom.embedding_length", int64_t{64}},        {"bloom.feed_forward_length", int64_t{256}},
       {"bloom.attention.head_count", int64_t{8}},     {"bloom.attention.layer_norm_epsilon", 1e-3}};
  const ModelConfig bloom = FromGguf(v);
  EXPECT_TRUE(bloom.shape.alibi);
  EXPECT_EQ(bloom.norm, NormKind::kLayer);
  EXPECT_EQ(bloom.ffn, FfnKind::kGelu);
  EXPECT_FALSE(bloom.shape.gated_ffn);
  EXPECT_TRUE(bloom.all_biases && bloom.embedding_norm == EmbeddingNorm::kStored && bloom.qkv_bias);
  EXPECT_EQ(bloom.norm_eps, 1e-3);
  EXPECT_EQ(bloom.shape.layer(0).kv_heads, 8);
}

TEST(ConfigFromGguf, RopeScaling) {
  Values v = With(LlamaValues(), "llama.rope.scaling.factor", 4.0);
  EXPECT_EQ(FromGguf(v).ropes.front().scaling, RopeConfig::Scaling::kLinear);  // a factor without a type
  EXPECT_EQ(FromGguf(With(LlamaValues(), "llama.rope.scale_linear", 2.0)).ropes.front().factor, 2);
  v = With(v, "llama.rope.scaling.type", std::string("yarn"));
  v = With(v, "llama.rope.scaling.original_context_length", int64_t{4096});
  const RopeConfig yarn = FromGguf(v).ropes.front();
  EXPECT_EQ(yarn.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_EQ(yarn.original_context, 4096);
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_DOUBLE_EQ(FromGguf(With(v, "llama.rope.scaling.attn_factor", 2.0)).ropes.front().attention_factor,
                   2 * (0.1 * std::log(4.0) + 1));
}

TEST(ConfigFromGguf, RefusesNamingFileKeyAndValue) {
  const Values good = LlamaValues();
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<Values, const char*> bad[] = {
      {{}, "general.architecture is missing"},
      {With(good, "general.architecture", std::string("gpt2")),
       "general.architecture = 'gpt2' is not supported (llama,"},
      {With(good, "general.architecture", int64_t{1}), "general.architecture"},
      {Without(good, "llama.block_count"), "llama.block_count is missing"},
      {With(good, "llama.block_count", int64_t{0}), "llama.block_count = 0 is not from 1 to"},
      {With(good, "llama.block_count", int64_t{-1}), "llama.block_count = -1"},
      {With(good, "llama.block_count", int64_t{1} << 40), "llama.block_count = 1099511627776"},
      {With(good, "llama.block_count", std::string("many")), "llama.block_count"},
      {Without(good, "llama.embedding_length"), "llama.embedding_length is missing"},
      {Without(good, "llama.feed_forward_length"), "llama.feed_forward_length is missing"},
      {With(good, "llama.attention.head_count_kv", int64_t{5}), "head_count_kv = 5 does not divide"},
      {With(good, "llama.attention.head_count_kv", int64_t{0}), "head_count_kv = 0"},
      {With(good, "llama.embedding_length", int64_t{2049}),
       "head_count = 32 does not divide llama.embedding_length = 2049"},
      {With(good, "llama.attention.layer_norm_rms_epsilon", 0.0), "rms_epsilon = 0 is not a positive number"},
      {With(good, "llama.rope.freq_base", -1.0), "llama.rope.freq_base = -1"},
      {With(good, "llama.rope.freq_base", inf), "llama.rope.freq_base = inf"},
      {With(good, "llama.rope.dimension_count", int64_t{63}), "dimension_count = 63 is not an even number"},
      {With(good, "llama.rope.dimension_count", int64_t{128}),
       "dimension_count = 128 is not an even number up to"},
      {With(good, "llama.rope.scaling.type", std::string("magic")), "= 'magic' is not supported"},
      {With(good, "llama.rope.scaling.factor", 0.0), "llama.rope.scaling.factor = 0"},
      {With(good, "llama.attention.sliding_window", int64_t{-4}), "sliding_window = -4 is out of range"},
      {With(good, "llama.logit_scale", 2.0), "llama.logit_scale = 2 is not supported"},
      {With(good, "llama.residual_scale", 0.5), "llama.residual_scale = 0.5 is not supported"},
      {With(good, "llama.attention.clamp_kqv", 8.0), "llama.attention.clamp_kqv = 8 is not supported"},
      {With(good, "llama.attention.causal", false), "llama.attention.causal = false"},
      {With(good, "llama.attention.temperature_scale", 0.1), "temperature_scale = 0.1 is not supported"},
      {With(good, "llama.rope.scaling.yarn_log_multiplier", -1.0), "yarn_log_multiplier = -1"},
      {With(good, "llama.expert_count", int64_t{8}), "llama.expert_used_count is missing"},
      {With(With(good, "llama.expert_count", int64_t{8}), "llama.expert_used_count", int64_t{9}),
       "llama.expert_used_count, layer 0: 9 is above llama.expert_count = 8"},
  };
  for (const auto& [values, part] : bad) {
    const std::string message = ErrorOf([&, v = &values] { FromGguf(*v); });
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_THAT(message, HasSubstr("m.gguf"));
  }
}

GgufValue List(std::vector<int64_t> items) {
  return std::make_shared<GgufArray>(GgufArray{std::move(items), 5});
}

// Every key of a layer's size may have a list with an entry for each layer in place of one value for all.
TEST(ConfigFromGguf, SizesByLayer) {
  Values v = With(LlamaValues(), "llama.block_count", int64_t{3});
  v = With(v, "llama.attention.head_count", List({32, 16, 64}));
  v = With(v, "llama.attention.head_count_kv", List({8, 16, 4}));
  v = With(v, "llama.feed_forward_length", List({8192, 1024, 4096}));
  v = With(v, "llama.attention.sliding_window", List({0, 512, 1024}));
  const ModelShape shape = FromGguf(With(v, "llama.rope.dimension_count", int64_t{32})).shape;
  const std::vector<LayerShape> wanted = {
      {.heads = 32, .kv_heads = 8, .head_dim = 64, .window = 0, .rope = 0, .ffn = 8192},
      {.heads = 16, .kv_heads = 16, .head_dim = 128, .window = 512, .rope = 0, .ffn = 1024},
      {.heads = 64, .kv_heads = 4, .head_dim = 32, .window = 1024, .rope = 0, .ffn = 4096}};
  EXPECT_EQ(shape.layers, wanted);
  EXPECT_EQ(shape.NarrowestWindow(), 512);
  EXPECT_EQ(shape.WidestWindow(), 0);  // a layer has none
  EXPECT_EQ(shape.NarrowestFfn(), 1024);
  // Heads turn in whole unless the file says otherwise: a rope for each size of head.
  const ModelConfig whole = FromGguf(Without(v, "llama.rope.dimension_count"));
  ASSERT_EQ(whole.ropes.size(), 3u);
  for (int l = 0; l < 3; ++l) {
    const LayerShape& layer = whole.shape.layer(l);
    EXPECT_EQ(whole.ropes[static_cast<size_t>(layer.rope)].dims, layer.head_dim) << l;
    EXPECT_EQ(AttentionScale(whole, layer), 1 / std::sqrt(static_cast<float>(layer.head_dim)));
  }
  v = With(v, "llama.attention.key_length", List({64, 64, 96}));
  EXPECT_EQ(FromGguf(v).shape.layer(2).head_dim, 96);
  for (const auto& [values, part] : std::vector<std::pair<Values, const char*>>{
           {With(v, "llama.attention.head_count", List({32, 32})), "head_count has 2 entries for 3 layers"},
           {With(v, "llama.attention.head_count_kv", List({8, 0, 4})),
            "head_count_kv[1] = 0 is not from 1 to"},
           {With(v, "llama.attention.head_count_kv", List({8, 5, 4})), "head_count_kv = 5 does not divide"},
           {With(v, "llama.feed_forward_length", List({1, 2, int64_t{1} << 40})),
            "feed_forward_length[2] = 1099511627776"},
           {With(v, "llama.feed_forward_length", List({})), "feed_forward_length has 0 entries"},
           {With(v, "llama.feed_forward_length",
                 std::make_shared<GgufArray>(GgufArray{std::vector<double>{1, 2, 3}, 6})),
            "an array of integers"},
           {With(v, "llama.attention.key_length", List({64, 63, 64})), "= 64 is not an even number up to"},
           {With(v, "llama.attention.sliding_window", List({0, -1, 0})), "sliding_window = -1"},
           {With(v, "llama.attention.sliding_window", List({0})), "sliding_window has 1 entries"},
           {With(v, "llama.block_count", List({1, 1, 1})), "block_count"},
           {With(v, "llama.embedding_length", List({1, 1, 1})), "embedding_length"}}) {
    const std::string message = ErrorOf([&, of = &values] { FromGguf(*of); });
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_THAT(message, HasSubstr("m.gguf"));
  }
}

// ---- Hugging Face

Json LlamaJson() {
  return {{"model_type", "llama"},     {"num_hidden_layers", 16},           {"hidden_size", 2048},
          {"intermediate_size", 8192}, {"num_attention_heads", 32},         {"num_key_value_heads", 8},
          {"vocab_size", 128256},      {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},    {"tie_word_embeddings", true}};
}

Json With(Json json, const char* key, Json value) {
  json[key] = std::move(value);
  return json;
}

ModelConfig FromHf(const Json& json) { return ConfigFromHf(json, "folder"); }

TEST(ConfigFromHf, Llama31) {
  Json j = With(LlamaJson(), "rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 32.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 8192}});
  const ModelConfig c = FromHf(j);
  EXPECT_EQ(c.shape.architecture, "llama");
  EXPECT_EQ(c.shape.vocab, 128256);
  EXPECT_EQ(c.shape.layer(0).head_dim, 64);
  EXPECT_TRUE(c.tied_head);
  EXPECT_FALSE(c.ropes.front().interleaved);  // only GGUF's converters permute
  EXPECT_EQ(c.ropes.front().scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(c.ropes.front().factor, 32);
  EXPECT_EQ(c.ropes.front().original_context, 8192);
  EXPECT_EQ(FromHf(With(LlamaJson(), "head_dim", 128)).shape.layer(0).head_dim, 128);
  EXPECT_EQ(FromHf(With(LlamaJson(), "head_dim", nullptr)).shape.layer(0).head_dim, 64);
  EXPECT_TRUE(FromHf(With(LlamaJson(), "attention_bias", true)).qkv_bias);
}

TEST(ConfigFromHf, SizesByLayer) {
  Json j = With(With(LlamaJson(), "num_hidden_layers", 2), "num_key_value_heads", {8, 2});
  j = With(With(j, "intermediate_size", {8192, 512}), "head_dim", {64, 32});
  const ModelConfig c = FromHf(j);
  EXPECT_EQ(c.shape.layer(1),
            (LayerShape{.heads = 32, .kv_heads = 2, .head_dim = 32, .rope = 1, .ffn = 512}));
  EXPECT_EQ(c.shape.layer(0).key_width(), 8 * 64);
  EXPECT_EQ(c.ropes[1].dims, 32);
  for (const auto& [value, part] : std::vector<std::pair<Json, const char*>>{
           {{8, 2, 2}, "num_key_value_heads has 3 entries for 2 layers"},
           {{8, 3}, "num_key_value_heads = 3 does not divide"},
           {{8, 2.5}, "num_key_value_heads holds a value that is not a whole number"},
           {{8, "2"}, "num_key_value_heads holds a value that is not a whole number"},
           {{8, uint64_t{1} << 63}, "num_key_value_heads holds a value that is not a whole number"}})
    EXPECT_THAT(ErrorOf([&, v = &value] { FromHf(With(j, "num_key_value_heads", *v)); }), HasSubstr(part));
}

TEST(ConfigFromHf, SlidingWindows) {
  Json mistral = With(LlamaJson(), "model_type", "mistral");
  EXPECT_EQ(FromHf(With(mistral, "sliding_window", 4096)).shape.layer(0).window, 4096);
  EXPECT_EQ(FromHf(With(mistral, "sliding_window", nullptr)).shape.layer(0).window, 0);
  Json qwen = With(With(LlamaJson(), "model_type", "qwen2"), "sliding_window", 4096);
  EXPECT_EQ(FromHf(qwen).shape.layer(0).window, 0);  // carried, but switched off
  EXPECT_EQ(FromHf(With(qwen, "use_sliding_window", false)).shape.layer(0).window, 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(FromHf(With(qwen, "max_window_layers", 0)).shape.layer(0).window, 4096);
  EXPECT_EQ(FromHf(With(qwen, "max_window_layers", 1000)).shape.layer(0).window, 0);  // no layer has it
  const ModelShape some = FromHf(With(qwen, "max_window_layers", 5)).shape;
  for (int l = 0; l < 16; ++l) EXPECT_EQ(some.layer(l).window, l < 5 ? 0 : 4096) << l;
  Json types = Json::array();
  for (int l = 0; l < 16; ++l) types.push_back(l % 4 == 3 ? "sliding_attention" : "full_attention");
  for (const Json& j : {With(qwen, "layer_types", types),
                        With(With(mistral, "sliding_window", 4096), "layer_types", types)}) {
    for (int l = 0; l < 16; ++l) EXPECT_EQ(FromHf(j).shape.layer(l).window, l % 4 == 3 ? 4096 : 0) << l;
  }
  EXPECT_TRUE(FromHf(qwen).qkv_bias);
}

TEST(ConfigFromHf, Bloom) {
  const Json j = {{"model_type", "bloom"}, {"n_layer", 2},     {"hidden_size", 64},
                  {"n_head", 8},           {"vocab_size", 50}, {"layer_norm_epsilon", 1e-5}};
  const ModelConfig c = FromHf(j);
  EXPECT_EQ(c.shape.layer_count(), 2);
  EXPECT_EQ(c.shape.layer(0).ffn, 256);  // four times the hidden size
  EXPECT_EQ(c.shape.layer(0).kv_heads, 8);
  EXPECT_TRUE(c.tied_head);
  Json old = j;
  old.erase("n_layer");
  old.erase("n_head");
  old.erase("hidden_size");
  old["num_hidden_layers"] = 3;
  old["num_attention_heads"] = 4;
  old["n_embed"] = 32;
  EXPECT_EQ(FromHf(old).shape.layer_count(), 3);
  EXPECT_EQ(FromHf(old).shape.layer(0).head_dim, 8);
  EXPECT_THAT(ErrorOf([&] { FromHf(With(j, "apply_residual_connection_post_layernorm", true)); }),
              HasSubstr("not supported"));
}

TEST(ConfigFromHf, RefusesNamingFileKeyAndValue) {
  const std::pair<Json, const char*> bad[] = {
      {Json::object(), "model_type = '' is not supported"},
      {With(LlamaJson(), "model_type", 3), "model_type is not a string"},
      {With(LlamaJson(), "model_type", "dbrx"), "model_type = 'dbrx' is not supported"},
      {With(LlamaJson(), "vocab_size", 0), "vocab_size = 0"},
      {With(LlamaJson(), "num_hidden_layers", 2.5), "num_hidden_layers is not a whole number"},
      {With(LlamaJson(), "num_hidden_layers", "16"), "num_hidden_layers is not a whole number"},
      {With(LlamaJson(), "num_hidden_layers", std::numeric_limits<uint64_t>::max()),
       "num_hidden_layers is too large"},
      {With(LlamaJson(), "hidden_size", -64), "hidden_size = -64"},
      {With(LlamaJson(), "num_key_value_heads", 7), "num_key_value_heads = 7 does not divide"},
      {With(LlamaJson(), "hidden_size", 2050), "does not divide hidden_size = 2050"},
      {With(LlamaJson(), "head_dim", 65), "head_dim = 65 is not an even number"},
      {With(LlamaJson(), "rms_norm_eps", "small"), "rms_norm_eps is not a number"},
      {With(LlamaJson(), "rms_norm_eps", -1.0), "rms_norm_eps = -1"},
      {With(LlamaJson(), "rope_theta", 0), "rope_theta = 0"},
      {With(LlamaJson(), "tie_word_embeddings", 1), "tie_word_embeddings is not true or false"},
      {With(LlamaJson(), "rope_scaling", 2), "rope_scaling is not an object"},
      {With(LlamaJson(), "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}),
       "= 'dynamic' is not supported"},
      {With(LlamaJson(), "rope_scaling", {{"type", "linear"}, {"factor", 0}}), "rope_scaling.factor"},
      {With(LlamaJson(), "rope_scaling", {{"type", "linear"}, {"factor", "two"}}), "rope_scaling.factor"},
      {With(LlamaJson(), "rope_scaling",
            {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
       "rope_scaling.high_freq_factor is not above"},
  };
  for (const auto& [json, part] : std::vector<std::pair<Json, std::string>>{
           {With(LlamaJson(), "rope_scaling", {{"factor", 2}}), "rope_scaling.rope_type is not a string"},
           {With(LlamaJson(), "rope_scaling", {{"rope_type", 5}}), "rope_scaling.rope_type is not a string"},
           {With(LlamaJson(), "rope_scaling",
                 {{"rope_type", "yarn"}, {"original_max_position_embeddings", 1e300}}),
            "original_max_position_embeddings"},
           {With(LlamaJson(), "hidden_act", "gelu"), "hidden_act = 'gelu'"}}) {
    EXPECT_THAT(ErrorOf([&, j = &json] { FromHf(*j); }), HasSubstr(part));
  }
  // Newer files keep theta and scaling in one object.
  const ModelConfig newer = FromHf(
      With(LlamaJson(), "rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 5e5}}));
  EXPECT_EQ(newer.ropes.front().base, 5e5);
  EXPECT_EQ(newer.ropes.front().factor, 2);
  for (const auto& [json, part] : bad) {
    const std::string message = ErrorOf([&, j = &json] { FromHf(*j); });
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_THAT(message, HasSubstr("folder/config.json"));
  }
}

// ---- ALiBi

TEST(AlibiSlopes, PowersOfTwoAndOthers) {
  EXPECT_EQ(AlibiSlopes(1), std::vector<float>{1.0f / 256});
  const std::vector<float> eight = AlibiSlopes(8);
  for (size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(eight[i], std::exp2(-static_cast<float>(i + 1)));
  // Twelve heads: the eight slopes of 8 heads, then every second slope of 16 heads, from the first.
  const std::vector<float> twelve = AlibiSlopes(12);
  ASSERT_EQ(twelve.size(), 12u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(twelve[i], eight[i]);
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(twelve[8 + i], std::exp2(-0.5f - static_cast<float>(i)));
}

}  // namespace
}  // namespace coppice::config_test
