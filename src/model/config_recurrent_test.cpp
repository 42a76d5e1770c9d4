// Descriptions of layers with a state in both formats, and files whose numbers do not fit each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using StateValues = std::map<std::string, GgufValue, std::less<>>;
using StateKeyValues = std::vector<std::pair<std::string, GgufValue>>;
using StateJson = nlohmann::json;

ModelConfig GgufStates(const std::string& row, const StateKeyValues& more) {
  StateValues v = {{"general.architecture", row},
                   {row + ".block_count", int64_t{8}},
                   {row + ".embedding_length", int64_t{64}},
                   {row + ".feed_forward_length", int64_t{96}},
                   {row + ".attention.head_count", int64_t{8}},
                   {row + ".ssm.conv_kernel", int64_t{4}},
                   {row + ".ssm.state_size", int64_t{16}},
                   {row + ".ssm.group_count", int64_t{2}},
                   {row + ".ssm.time_step_rank", int64_t{6}},
                   {row + ".ssm.inner_size", int64_t{72}},
                   {row + ".shortconv.l_cache", int64_t{3}}};
  for (const auto& [key, value] : more) v[row + "." + key] = value;
  return ConfigFromGguf(GgufMetadata("m.gguf", v));
}

GgufValue Numbers(std::vector<int64_t> items) {
  return std::make_shared<GgufArray>(GgufArray{std::move(items), 5});
}
GgufValue Flags(std::vector<bool> items) {
  return std::make_shared<GgufArray>(GgufArray{std::move(items), 7});
}

std::string Attending(const ModelConfig& c) {
  std::string kinds;
  for (const LayerShape& layer : c.shape.layers)
    kinds += layer.attends() ? 'A' : layer.has_state() ? '-' : 'F';
  return kinds;
}

TEST(ConfigOfStates, Gguf) {
  const ModelConfig qwen = GgufStates("qwen35", {});
  EXPECT_EQ(Attending(qwen), "---A---A");
  const RecurrentShape delta = {.taps = 4,
                                .channels = 2 * 32 + 72,
                                .key_heads = 2,
                                .value_heads = 6,
                                .key_dim = 16,
                                .value_dim = 12,
                                .tiled = true,
                                .norm_groups = 6};
  EXPECT_EQ(qwen.shape.layer(0).recurrent, delta);
  EXPECT_EQ(qwen.shape.layer(0).mixer, MixerKind::kGatedDelta);
  EXPECT_EQ(qwen.shape.layer(0).key_width(), 0);
  EXPECT_EQ(qwen.shape.layer(0).rope, kNoRope);
  EXPECT_TRUE(qwen.shape.layer(3).output_gate && qwen.gate_in_query);
  EXPECT_EQ(qwen.shape.StateBytes(), 6 * 4 * (3 * 136 + 6 * 16 * 12));
  EXPECT_EQ(Attending(GgufStates("qwen35", {{"full_attention_interval", int64_t{2}}})), "-A-A-A-A");
  // The list counts first; layers that predict further tokens are cut off behind it.
  const ModelConfig listed = GgufStates(
      "qwen35", {{"full_attention_interval", int64_t{2}},
                 {"attention.recurrent_layers", Flags({true, true, false, false, true, true, false, false})},
                 {"nextn_predict_layers", int64_t{1}}});
  EXPECT_EQ(Attending(listed), "--AA--A");

  const GgufValue heads = Numbers({0, 0, 4, 0, 0, 4, 0, 4});
  const ModelConfig lfm = GgufStates("lfm2", {{"attention.head_count_kv", heads}});
  EXPECT_EQ(Attending(lfm), "--A--A-A");
  EXPECT_EQ(lfm.shape.layer(2).kv_heads, 4);
  const RecurrentShape conv = {.taps = 3, .channels = 64};
  EXPECT_EQ(lfm.shape.layer(0).recurrent, conv);
  const ModelConfig granite = GgufStates("granitehybrid", {{"attention.head_count_kv", heads}});
  EXPECT_EQ(granite.shape.layer(0).recurrent.channels, 72 + 2 * 32);
  EXPECT_EQ(granite.shape.layer(0).recurrent.norm_groups, 2);
}

TEST(ConfigOfStates, GgufThatDoesNotFit) {
  const auto error = [](const std::string& row, const std::string& key, GgufValue value) {
    return ErrorOf([&] { GgufStates(row, {{key, std::move(value)}}); });
  };
  EXPECT_THAT(error("qwen35", "ssm.conv_kernel", int64_t{1}), HasSubstr("ssm.conv_kernel = 1 is no"));
  EXPECT_THAT(error("qwen35", "ssm.conv_kernel", int64_t{65}), HasSubstr("ssm.conv_kernel = 65"));
  EXPECT_THAT(error("qwen35", "ssm.state_size", int64_t{0}), HasSubstr("ssm.state_size = 0"));
  EXPECT_THAT(error("qwen35", "ssm.group_count", int64_t{4}),
              HasSubstr("ssm.time_step_rank = 6 is no multiple of qwen35.ssm.group_count = 4"));
  EXPECT_THAT(error("qwen35", "ssm.inner_size", int64_t{73}),
              HasSubstr("ssm.inner_size = 73 is no multiple of qwen35.ssm.time_step_rank = 6"));
  EXPECT_THAT(error("qwen35", "full_attention_interval", int64_t{0}),
              HasSubstr("full_attention_interval = 0"));
  EXPECT_THAT(error("qwen35", "attention.recurrent_layers", Flags({true, false})),
              HasSubstr("attention.recurrent_layers has 2 entries for 8 layers"));
  EXPECT_THAT(error("qwen35", "nextn_predict_layers", int64_t{8}),
              HasSubstr("nextn_predict_layers = 8 leaves"));
  EXPECT_THAT(error("lfm2", "attention.head_count_kv", int64_t{4}),
              HasSubstr("attention.head_count_kv is not a list with the heads of 8 layers"));
  EXPECT_THAT(error("lfm2", "attention.head_count_kv", Numbers({0, 4})), HasSubstr("entries for 8 layers"));
  EXPECT_THAT(error("lfm2", "attention.head_count_kv", Numbers({0, 4, 0, 4, 0, 4, 0, -1})),
              HasSubstr("head_count_kv[7] = -1"));
}

StateJson HfStates(const std::string& type, const StateJson& more) {
  StateJson j = {{"model_type", type},      {"num_hidden_layers", 4},   {"hidden_size", 64},
                 {"intermediate_size", 96}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"vocab_size", 50}};
  for (const auto& [key, value] : more.items()) j[key] = value;
  return j;
}

TEST(ConfigOfStates, FoldersThatDoNotFit) {
  const auto error = [](const std::string& type, const StateJson& more) {
    return ErrorOf([&] { ConfigFromHf(HfStates(type, more), "folder"); });
  };
  EXPECT_EQ(Attending(ConfigFromHf(HfStates("qwen3_5_text", {}), "folder")), "---A");
  EXPECT_THAT(error("qwen3_5_text", {{"linear_num_value_heads", 5}}),
              HasSubstr("linear_num_value_heads = 5 is no multiple of linear_num_key_heads = 16"));
  EXPECT_THAT(error("qwen3_5_text", {{"linear_conv_kernel_dim", 0}}),
              HasSubstr("linear_conv_kernel_dim = 0"));
  EXPECT_THAT(error("qwen3_5_text", {{"layer_types", StateJson::array({"full_attention"})}}),
              HasSubstr("layer_types is not a list of 4 types"));
  EXPECT_THAT(error("qwen3_5_text", {{"attn_output_gate", false}}),
              HasSubstr("attn_output_gate = false is not"));
  const StateJson strange = StateJson::array({"conv", "conv", "mamba", "conv"});
  EXPECT_THAT(error("lfm2", {{"layer_types", strange}}),
              HasSubstr("layer_types holds mamba, which is neither full_attention nor conv"));
  EXPECT_THAT(error("lfm2", {{"full_attn_idxs", {1, 4}}}), HasSubstr("holds 4, which is none of 4 layers"));
  EXPECT_THAT(error("lfm2", {{"conv_bias", true}}), HasSubstr("conv_bias = true is not supported"));
  const StateJson mamba = {{"mamba_n_heads", 8}, {"mamba_d_head", 16}, {"num_local_experts", 0}};
  EXPECT_EQ(error("granitemoehybrid", mamba), "no error");
  const auto changed = [&](const StateJson& more) {
    StateJson j = mamba;
    j.update(more);
    return error("granitemoehybrid", j);
  };
  EXPECT_THAT(changed({{"mamba_d_head", 15}}),
              HasSubstr("mamba_d_head = 15 times mamba_n_heads = 8 is not mamba_expand hidden_size = 128"));
  EXPECT_THAT(changed({{"mamba_n_groups", 3}}),
              HasSubstr("mamba_n_heads = 8 is no multiple of mamba_n_groups"));
  EXPECT_THAT(changed({{"mamba_proj_bias", true}}), HasSubstr("mamba_proj_bias = true is not supported"));
  EXPECT_THAT(changed({{"time_step_limit", {0.001, 0.1}}}), HasSubstr("time_step_limit = [0.001,0.1]"));
  EXPECT_EQ(changed({{"time_step_limit", {0.0, {{"__float__", "Infinity"}}}}}), "no error");
}

StateKeyValues Blocks(const std::string& row, const StateKeyValues& more) {
  StateKeyValues all = {{"attention.layer_norm_epsilon", 1e-4},
                        {"attention.key_length", int64_t{16}},
                        {"attention.head_count_kv", Numbers({0, 0, 2, 0, 0, 0, 2, 0})},
                        {"feed_forward_length", Numbers({0, 48, 0, 0, 48, 0, 0, 48})}};
  if (row == "nemotron_h_moe") {
    all.insert(all.end(), {{"expert_count", int64_t{6}},
                           {"expert_used_count", int64_t{3}},
                           {"expert_shared_feed_forward_length", int64_t{20}},
                           {"expert_weights_scale", 2.5}});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(ConfigOfBlocks, Gguf) {
  const ModelConfig dense = GgufStates("nemotron_h", Blocks("nemotron_h", {}));
  EXPECT_EQ(Attending(dense), "-FA-F-AF");
  EXPECT_EQ(dense.norm_eps, 1e-4);
  EXPECT_EQ(dense.recurrent_norm_eps, 1e-4);
  EXPECT_TRUE(dense.ropes.empty());
  EXPECT_FALSE(dense.shape.gated_ffn);
  const LayerShape ffn = {.rope = kNoRope, .ffn = 48, .mixer = MixerKind::kNone};
  EXPECT_EQ(dense.shape.layer(1), ffn);
  const LayerShape attention = {.heads = 8, .kv_heads = 2, .head_dim = 16, .rope = kNoRope};
  EXPECT_EQ(dense.shape.layer(2), attention);
  EXPECT_FALSE(dense.shape.layer(0).has_ffn());
  EXPECT_EQ(dense.shape.StateBytes(), 3 * 4 * (3 * 136 + 6 * 16 * 12));

  // A file without a width of experts has that of a row's.
  const ModelConfig mixtures = GgufStates("nemotron_h_moe", Blocks("nemotron_h_moe", {}));
  EXPECT_EQ(Attending(mixtures), "-FA-F-AF");
  const MixtureShape mixture = {.experts = 6, .used = 3, .width = 16, .shared_width = 20};
  EXPECT_EQ(mixtures.shape.layer(4).mixture, mixture);
  EXPECT_EQ(mixtures.shape.layer(4).ffn, 0);
  EXPECT_EQ(mixtures.shape.layer(3).mixture, MixtureShape());
  EXPECT_EQ(mixtures.router.scale, 2.5f);
  // The block behind the model's own is both.
  const ModelConfig cut =
      GgufStates("nemotron_h_moe",
                 Blocks("nemotron_h_moe", {{"attention.head_count_kv", Numbers({0, 0, 2, 0, 0, 0, 2, 2})},
                                           {"nextn_predict_layers", int64_t{1}}}));
  EXPECT_EQ(Attending(cut), "-FA-F-A");
}

TEST(ConfigOfBlocks, GgufThatDoesNotFit) {
  const auto error = [](const std::string& row, const std::string& key, GgufValue value) {
    return ErrorOf([&] { GgufStates(row, Blocks(row, {{key, std::move(value)}})); });
  };
  EXPECT_THAT(error("nemotron_h", "feed_forward_length", Numbers({0, 48, 24, 0, 0, 0, 0, 0})),
              HasSubstr("feed_forward_length[2] = 24 beside nemotron_h.attention.head_count_kv[2] = 2"));
  EXPECT_THAT(error("nemotron_h", "feed_forward_length", int64_t{48}),
              HasSubstr("feed_forward_length is not a list"));
  EXPECT_THAT(error("nemotron_h", "feed_forward_length", Numbers({0, 48})),
              HasSubstr("entries for 8 layers"));
  EXPECT_THAT(error("nemotron_h", "feed_forward_length", Numbers({0, 48, 0, -1, 0, 0, 0, 0})),
              HasSubstr("feed_forward_length[3] = -1"));
  EXPECT_THAT(error("nemotron_h", "feed_forward_length", Numbers({48, 48, 0, 48, 48, 48, 0, 48})),
              HasSubstr("leave no Mamba block"));
  EXPECT_THAT(error("nemotron_h", "attention.head_count_kv", int64_t{2}),
              HasSubstr("attention.head_count_kv is not a list"));
  EXPECT_THAT(error("nemotron_h_moe", "moe_latent_size", int64_t{32}),
              HasSubstr("moe_latent_size = 32: experts of latents"));
  EXPECT_THAT(error("nemotron_h_moe", "expert_group_count", int64_t{4}), HasSubstr("expert_group_count = 4"));
}

StateJson HfBlockModel(const StateJson& more) {
  StateJson j = {{"hybrid_override_pattern", "M-*E"},
                 {"mamba_num_heads", 6},
                 {"mamba_head_dim", 12},
                 {"n_groups", 2},
                 {"ssm_state_size", 16},
                 {"head_dim", 16}};
  j.update(more);
  return HfStates("nemotron_h", j);
}

TEST(ConfigOfBlocks, Folders) {
  const ModelConfig both = ConfigFromHf(HfBlockModel(StateJson::object()), "folder");
  EXPECT_EQ(both.shape.architecture, "nemotron_h_moe");
  EXPECT_EQ(Attending(both), "-FAF");
  EXPECT_EQ(both.shape.layer(1).ffn, 96);
  EXPECT_EQ(both.shape.layer(3).mixture.width, 7688);
  EXPECT_EQ(both.shape.layer(0).recurrent.channels, 72 + 2 * 32);
  // A list counts before the pattern, and is as long as the model is deep.
  StateJson listed =
      HfBlockModel({{"layers_block_type", {"mamba", "mlp", "attention", "mlp", "linear_attention"}}});
  listed.erase("num_hidden_layers");
  const ModelConfig dense = ConfigFromHf(listed, "folder");
  EXPECT_EQ(dense.shape.architecture, "nemotron_h");
  EXPECT_EQ(Attending(dense), "-FAF-");
  EXPECT_FALSE(dense.shape.HasMixtures());
}

TEST(ConfigOfBlocks, FoldersThatDoNotFit) {
  const auto error = [](const StateJson& more) {
    return ErrorOf([&] { ConfigFromHf(HfBlockModel(more), "folder"); });
  };
  EXPECT_EQ(error({{"time_step_limit", {0.0, {{"__float__", "Infinity"}}}}}), "no error");
  EXPECT_THAT(error({{"time_step_limit", {0.0, {{"__float__", 3}}}}}), HasSubstr("time_step_limit = "));
  EXPECT_THAT(error({{"hybrid_override_pattern", "M-*"}}),
              HasSubstr("hybrid_override_pattern has 3 blocks for num_hidden_layers = 4"));
  EXPECT_THAT(error({{"hybrid_override_pattern", "M-*X"}}),
              HasSubstr("hybrid_override_pattern[3] = \"X\" is none of M, *, - and E"));
  EXPECT_THAT(error({{"hybrid_override_pattern", 3}}), HasSubstr("hybrid_override_pattern is not a string"));
  EXPECT_THAT(error({{"hybrid_override_pattern", nullptr}, {"num_hidden_layers", 5}}),
              HasSubstr("hybrid_override_pattern has 4 blocks for num_hidden_layers = 5"));
  EXPECT_THAT(error({{"hybrid_override_pattern", "*-*E"}}), HasSubstr("has no Mamba block"));
  EXPECT_THAT(error({{"layers_block_type", {"mamba", "conv", "moe", "mlp"}}}),
              HasSubstr("layers_block_type[1] = \"conv\" is none of mamba, attention, mlp and moe"));
  EXPECT_THAT(error({{"layers_block_type", "M-*E"}}), HasSubstr("layers_block_type is not a list"));
  EXPECT_THAT(error({{"n_groups", 4}}), HasSubstr("mamba_num_heads = 6 is no multiple of n_groups = 4"));
  EXPECT_THAT(error({{"n_group", 2}}), HasSubstr("n_group = 2: experts chosen group by group"));
  EXPECT_THAT(error({{"moe_latent_size", 1024}}), HasSubstr("moe_latent_size = 1024: experts of latents"));
  EXPECT_THAT(error({{"num_experts_per_tok", 9}}), HasSubstr("9 is above n_routed_experts = 8"));
  EXPECT_THAT(error({{"mlp_hidden_act", "silu"}}),
              HasSubstr("mlp_hidden_act = 'silu' is not supported (relu2)"));
  EXPECT_THAT(error({{"mlp_bias", true}}), HasSubstr("mlp_bias = true is not supported"));
  EXPECT_THAT(error({{"time_step_limit", {0.01, 0.1}}}), HasSubstr("time_step_limit = [0.01,0.1]"));
}

}  // namespace
}  // namespace coppice
