// What a layer's weights let its attention round.
#include "model/layer.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

AttentionShape Attends(DType output, bool has_key_bias) {
  const Tensor weight(output, 32, 32);
  const Tensor bias(DType::kF32, 1, 32);
  LayerWeights weights;
  weights.output.weight = weight.view();
  if (has_key_bias) weights.key.bias = bias.view();
  ModelConfig config;
  config.shape.heads = config.shape.kv_heads = 2;
  config.shape.head_dim = 16;
  return AttentionOf(config, 0, weights, {});
}

TEST(AttentionOf, OnlyQuantisedLayersRoundTo8Bits) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_FALSE(Attends(type, false).int8_values);
    EXPECT_FALSE(Attends(type, false).int8_keys);
  }
  EXPECT_TRUE(Attends(DType::kQ8_0, false).int8_values);
  EXPECT_TRUE(Attends(DType::kQ8_0, false).int8_keys);
}

TEST(AttentionOf, KeysWithABiasStayInBf16) {
  EXPECT_TRUE(Attends(DType::kQ8_0, true).int8_values);
  EXPECT_FALSE(Attends(DType::kQ8_0, true).int8_keys);
}

}  // namespace
}  // namespace coppice
