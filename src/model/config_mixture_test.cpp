// Descriptions of mixtures of experts in both formats, and files whose numbers do not fit each other.
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
using MixtureValues = std::map<std::string, GgufValue, std::less<>>;
using MixtureJson = nlohmann::json;

// Keys without the architecture's name, and their values.
using MixtureKeyValues = std::vector<std::pair<std::string, GgufValue>>;

ModelConfig GgufMixture(const std::string& row, const MixtureKeyValues& more) {
  MixtureValues v = {{"general.architecture", row},
                     {row + ".block_count", int64_t{4}},
                     {row + ".embedding_length", int64_t{64}},
                     {row + ".feed_forward_length", int64_t{96}},
                     {row + ".attention.head_count", int64_t{8}},
                     {row + ".expert_count", int64_t{6}},
                     {row + ".expert_used_count", int64_t{2}}};
  for (const auto& [key, value] : more) v[row + "." + key] = value;
  return ConfigFromGguf(GgufMetadata("m.gguf", v));
}

GgufValue MixtureList(std::vector<int64_t> items) {
  return std::make_shared<GgufArray>(GgufArray{std::move(items), 5});
}

TEST(ConfigOfMixtures, Gguf) {
  const ModelConfig qwen = GgufMixture("qwen3moe", {{"expert_feed_forward_length", int64_t{32}}});
  const MixtureShape of_32{.experts = 6, .used = 2, .width = 32};
  for (const LayerShape& layer : qwen.shape.layers) {
    EXPECT_EQ(layer.mixture, of_32);
    EXPECT_EQ(layer.ffn, 0);
    EXPECT_EQ(layer.inner_width(), 32);
  }
  EXPECT_TRUE(qwen.shape.HasMixtures() && qwen.router.normalise && qwen.head_norms);
  EXPECT_EQ(qwen.router.kind, RouterKind::kSoftmaxTopK);
  EXPECT_EQ(qwen.router.scale, 1);
  EXPECT_EQ(qwen.shape.NarrowestFfn(), 0);
  // Where the width of experts is missing, feed_forward_length is that of a token's or of one.
  EXPECT_EQ(GgufMixture("qwen3moe", {}).shape.layer(0).mixture.width, 48);
  EXPECT_EQ(GgufMixture("llama", {}).shape.layer(0).mixture.width, 96);
  EXPECT_EQ(GgufMixture("olmoe", {}).shape.layer(0).mixture.width, 96);
  EXPECT_FALSE(GgufMixture("olmoe", {}).router.normalise);
  EXPECT_EQ(GgufMixture("granitemoe", {}).router.kind, RouterKind::kTopKSoftmax);
  EXPECT_EQ(GgufMixture("granitemoe", {}).shape.layer(0).mixture.shared_width, 0);
  const MixtureShape shared =
      GgufMixture("qwen2moe", {{"expert_shared_feed_forward_length", int64_t{80}}}).shape.layer(0).mixture;
  EXPECT_EQ(shared.shared_width, 80);
  EXPECT_TRUE(shared.shared_gate);
  EXPECT_EQ(GgufMixture("qwen2moe", {}).shape.layer(0).mixture.shared_width, 96);
  EXPECT_EQ(GgufMixture("qwen3moe", {{"expert_weights_scale", 2.5}}).router.scale, 2.5f);
  EXPECT_FALSE(GgufMixture("llama", {{"expert_count", int64_t{0}}}).shape.HasMixtures());
}

TEST(ConfigOfMixtures, GgufByLayer) {
  const ModelConfig c =
      GgufMixture("qwen3moe", {{"expert_feed_forward_length", MixtureList({32, 16, 48, 64})},
                               {"expert_used_count", MixtureList({1, 2, 3, 6})},
                               {"leading_dense_block_count", int64_t{1}}});
  EXPECT_EQ(c.shape.layer(0).ffn, 96);
  EXPECT_EQ(c.shape.layer(0).mixture.experts, 0);
  EXPECT_EQ(c.shape.layer(3).mixture.width, 64);
  EXPECT_EQ(c.shape.layer(3).mixture.used, 6);
  // A file whose layers all have mixtures may have no feed_forward_length, or 0.
  MixtureKeyValues pure = {{"expert_feed_forward_length", int64_t{32}}, {"feed_forward_length", int64_t{0}}};
  EXPECT_EQ(GgufMixture("qwen3moe", pure).shape.layer(1).mixture.width, 32);
  pure.emplace_back("leading_dense_block_count", int64_t{2});
  EXPECT_THAT(
      ErrorOf([&] { GgufMixture("qwen3moe", pure); }),
      HasSubstr("qwen3moe.feed_forward_length is missing, and qwen3moe.leading_dense_block_count = 2"));
}

TEST(ConfigOfMixtures, BadGguf) {
  const std::vector<std::pair<MixtureKeyValues, std::string>> bad = {
      {{{"expert_count", int64_t{-1}}}, "qwen3moe.expert_count = -1 is not from 1 to 4096"},
      {{{"expert_count", int64_t{0}}}, "qwen3moe.expert_count is missing"},
      {{{"expert_count", int64_t{5000}}}, "qwen3moe.expert_count = 5000 is not from 1 to 4096"},
      {{{"expert_used_count", int64_t{0}}}, "qwen3moe.expert_used_count = 0 is not from 1"},
      {{{"expert_used_count", int64_t{7}}},
       "qwen3moe.expert_used_count, layer 0: 7 is above qwen3moe.expert_count = 6"},
      {{{"expert_used_count", MixtureList({1, 2, 7, 1})}},
       "qwen3moe.expert_used_count, layer 2: 7 is above qwen3moe.expert_count = 6"},
      {{{"expert_used_count", MixtureList({1, 2, 1, 1, 1})}}, "has 5 entries for 4 layers"},
      {{{"expert_used_count", int64_t{5}}},
       "qwen3moe.expert_used_count, layer 0: 5 does not divide qwen3moe.feed_forward_length = 96"},
      {{{"expert_feed_forward_length", int64_t{-8}}}, "expert_feed_forward_length = -8 is not from 1"},
      {{{"expert_feed_forward_length", MixtureList({8, 8, 0, 8})}},
       "expert_feed_forward_length[2] = 0 is not from 1"},
      {{{"leading_dense_block_count", int64_t{5}}},
       "leading_dense_block_count = 5 is not from 0 to qwen3moe.block_count = 4"},
      {{{"leading_dense_block_count", int64_t{-1}}}, "leading_dense_block_count = -1 is not"},
      {{{"expert_shared_feed_forward_length", int64_t{8}}},
       "expert_shared_feed_forward_length = 8 is not supported"},
      {{{"expert_shared_count", int64_t{1}}}, "expert_shared_count = 1 is not supported"},
      {{{"expert_gating_func", int64_t{2}}}, "expert_gating_func = 2 is not supported"},
      {{{"expert_group_count", int64_t{4}}}, "expert_group_count = 4 is not supported"},
      {{{"expert_weights_norm", false}}, "expert_weights_norm = false is not supported"},
      {{{"interleave_moe_layer_step", int64_t{2}}}, "interleave_moe_layer_step = 2 is not supported"},
      {{{"expert_weights_scale", -1.0}}, "expert_weights_scale = -1 is not a positive number"},
  };
  for (const auto& [keys, part] : bad) {
    const std::string message = ErrorOf([&, k = &keys] { GgufMixture("qwen3moe", *k); });
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_THAT(message, HasSubstr("m.gguf"));
  }
  EXPECT_THAT(ErrorOf([] { GgufMixture("qwen3", {}); }), HasSubstr("qwen3.expert_count is not 0"));
  EXPECT_THAT(ErrorOf([] {
                GgufMixture("qwen2moe", {{"expert_shared_feed_forward_length", int64_t{-3}}});
              }),
              HasSubstr("expert_shared_feed_forward_length = -3 is not from 1"));
}

TEST(ConfigOfMixtures, GptOss) {
  const ModelConfig c = GgufMixture("gpt-oss", {{"attention.sliding_window", int64_t{128}},
                                                {"rope.scaling.type", std::string("yarn")},
                                                {"rope.scaling.factor", 32.0},
                                                {"rope.scaling.original_context_length", int64_t{4096}}});
  const ModelConfig hf = ConfigFromHf({{"model_type", "gpt_oss"}}, "folder");
  for (const ModelConfig* one : {&c, &hf}) {
    EXPECT_TRUE(one->sinks && one->qkv_bias);
    EXPECT_EQ(one->ffn, FfnKind::kSwiGluOai);
    EXPECT_EQ(one->router.kind, RouterKind::kTopKSoftmax);
    EXPECT_EQ(one->ropes.front().base, 150000);
    EXPECT_EQ(one->ropes.front().scaling, RopeConfig::Scaling::kYarn);
    for (int l = 0; l < 4; ++l) EXPECT_EQ(one->shape.layer(l).window, l % 2 == 0 ? 128 : 0) << l;
  }
  EXPECT_TRUE(c.ropes.front().truncate) << "as llama.cpp";
  EXPECT_FALSE(hf.ropes.front().truncate) << "as the class says";
  EXPECT_FALSE(ConfigFromHf({{"model_type", "gpt_oss"}, {"attention_bias", false}}, "folder").qkv_bias);
  EXPECT_THAT(ErrorOf([] {
                ConfigFromHf({{"model_type", "gpt_oss"}, {"swiglu_limit", 6.5}}, "folder");
              }),
              HasSubstr("folder/config.json: swiglu_limit = 6.5 is not supported (7)"));
}

ModelConfig HfMixtureOf(const MixtureJson& json) { return ConfigFromHf(json, "folder"); }

MixtureJson QwenJson(const MixtureJson& more = MixtureJson::object()) {
  MixtureJson json = {{"model_type", "qwen3_moe"}, {"num_hidden_layers", 6},   {"hidden_size", 64},
                      {"num_attention_heads", 8},  {"intermediate_size", 96},  {"moe_intermediate_size", 32},
                      {"num_experts", 6},          {"num_experts_per_tok", 2}, {"norm_topk_prob", true}};
  json.update(more);
  return json;
}

TEST(ConfigOfMixtures, Hf) {
  const ModelConfig c = HfMixtureOf(QwenJson());
  EXPECT_EQ(c.shape.layer(5).mixture, (MixtureShape{.experts = 6, .used = 2, .width = 32}));
  EXPECT_TRUE(c.router.normalise);
  MixtureJson without = QwenJson();
  without.erase("norm_topk_prob");
  EXPECT_FALSE(HfMixtureOf(without).router.normalise) << "the class's default";
  without["num_local_experts"] = without["num_experts"];
  without.erase("num_experts");
  EXPECT_EQ(HfMixtureOf(without).shape.layer(0).mixture.experts, 6) << "the other name of the key";
  // Every second layer, and not layer 3.
  const ModelConfig some = HfMixtureOf(QwenJson({{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}}));
  for (int l = 0; l < 6; ++l) {
    const bool sparse = l == 1 || l == 5;
    EXPECT_EQ(some.shape.layer(l).mixture.experts, sparse ? 6 : 0) << l;
    EXPECT_EQ(some.shape.layer(l).ffn, sparse ? 0 : 96) << l;
  }
  EXPECT_FALSE(HfMixtureOf(QwenJson({{"num_experts", 0}})).shape.HasMixtures());
  EXPECT_EQ(HfMixtureOf(QwenJson({{"sliding_window", 9}})).shape.layer(0).window, 0);
  EXPECT_EQ(
      HfMixtureOf(QwenJson({{"sliding_window", 9}, {"use_sliding_window", true}})).shape.layer(0).window, 9);
  const ModelConfig mixtral = HfMixtureOf({{"model_type", "mixtral"}});
  EXPECT_EQ(mixtral.shape.layer(0).mixture, (MixtureShape{.experts = 8, .used = 2, .width = 14336}));
  EXPECT_TRUE(mixtral.router.normalise);
  EXPECT_EQ(mixtral.ropes.front().base, 1e6);
  EXPECT_EQ(HfMixtureOf({{"model_type", "granitemoe"}}).router.kind, RouterKind::kTopKSoftmax);
  EXPECT_EQ(HfMixtureOf({{"model_type", "granitemoeshared"}, {"shared_intermediate_size", 7}})
                .shape.layer(0)
                .mixture.shared_width,
            7);
}

TEST(ConfigOfMixtures, Qwen2OfHf) {
  const MixtureJson base = {{"model_type", "qwen2_moe"}, {"num_hidden_layers", 5}, {"max_window_layers", 3}};
  const ModelConfig c = HfMixtureOf(base);
  EXPECT_TRUE(c.qkv_bias && c.shape.layer(0).mixture.shared_gate);
  EXPECT_EQ(c.shape.layer(0).mixture.shared_width, 5632);
  EXPECT_FALSE(c.router.normalise);
  MixtureJson json = base;
  json["qkv_bias"] = false;
  EXPECT_FALSE(HfMixtureOf(json).qkv_bias);
  json["use_sliding_window"] = true;
  json["sliding_window"] = 9;
  for (int l = 0; l < 5; ++l)
    EXPECT_EQ(HfMixtureOf(json).shape.layer(l).window, l == 0 || l == 2 ? 9 : 0) << l;
  EXPECT_TRUE(HfMixtureOf({{"model_type", "qwen2"}, {"qkv_bias", false}}).qkv_bias) << "no key of its class";
}

TEST(ConfigOfMixtures, BadHf) {
  const std::vector<std::pair<MixtureJson, std::string>> bad = {
      {{{"num_experts", -2}}, "num_experts = -2 is not from 1 to 4096"},
      {{{"num_experts_per_tok", 9}}, "num_experts_per_tok, layer 0: 9 is above num_experts = 6"},
      {{{"num_experts_per_tok", 0}}, "num_experts_per_tok = 0"},
      {{{"moe_intermediate_size", 0}}, "moe_intermediate_size = 0"},
      {{{"decoder_sparse_step", 0}}, "decoder_sparse_step = 0"},
      {{{"mlp_only_layers", {1, 6}}}, "mlp_only_layers[1] = 6 is no layer of num_hidden_layers = 6"},
      {{{"mlp_only_layers", {-1}}}, "mlp_only_layers[0] = -1 is no layer"},
      {{{"mlp_only_layers", 3}}, "mlp_only_layers is not a list of layers"},
      {{{"num_local_experts", 8}}, "num_experts = 6 differs from num_local_experts = 8"},
      {{{"n_group", 4}}, "n_group = 4 is not supported"},
      {{{"shared_expert_intermediate_size", 16}}, "shared_expert_intermediate_size = 16 is not supported"},
      {{{"first_k_dense_replace", 1}}, "first_k_dense_replace = 1 is not supported"},
  };
  for (const auto& [keys, part] : bad)
    EXPECT_THAT(ErrorOf([&, k = &keys] { HfMixtureOf(QwenJson(*k)); }), HasSubstr(part));
}

}  // namespace
}  // namespace coppice
