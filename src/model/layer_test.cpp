// What a layer's weights let its attention round.
#include "model/layer.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

AttentionShape Attends(DType output, bool has_key_bias, bool has_key_norm = false, int head_dim = 16) {
  const Tensor weight(output, 32, 32);
  const Tensor bias(DType::kF32, 1, 32);
  LayerWeights weights;
  weights.output.weight = weight.view();
  if (has_key_bias) weights.key.bias = bias.view();
  const Tensor norm(DType::kF32, 1, head_dim);
  if (has_key_norm) weights.key_norm.weight = norm.view();
  ModelConfig config;
  config.shape.layers = {{.heads = 2, .kv_heads = 2, .head_dim = head_dim}};
  return AttentionOf(config, 0, weights, {});
}

TEST(AttentionOf, OnlyQuantisedLayersRoundTo8Bits) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_FALSE(Attends(type, false).int8_values);
    EXPECT_EQ(Attends(type, false).key_bits, 0);
  }
  EXPECT_TRUE(Attends(DType::kQ8_0, false).int8_values);
  EXPECT_EQ(Attends(DType::kQ8_0, false).key_bits, 8);
}

TEST(AttentionOf, KeysWithABiasStayInBf16) {
  EXPECT_TRUE(Attends(DType::kQ8_0, true).int8_values);
  EXPECT_EQ(Attends(DType::kQ8_0, true).key_bits, 0);
}

TEST(AttentionOf, KeysWithANormAndWideHeadsHave16Bits) {
  EXPECT_EQ(Attends(DType::kQ8_0, false, true).key_bits, 16);
  EXPECT_EQ(Attends(DType::kQ8_0, false, false, 128).key_bits, 8);
  EXPECT_EQ(Attends(DType::kQ8_0, false, false, 256).key_bits, 16);
  EXPECT_EQ(Attends(DType::kBF16, false, true, 256).key_bits, 0);
}

}  // namespace
}  // namespace coppice
