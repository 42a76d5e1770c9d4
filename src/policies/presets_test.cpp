// Section 16 of the methods' specification. LazyLLM's memory clamp (marked * there) is not part of
// SlimInfer's stages.
#include "policies/presets.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

ModelShape Shape(const char* architecture, int layers, int64_t hidden, int kv_heads = 8) {
  ModelShape s;
  s.architecture = architecture;
  s.layers = layers;
  s.hidden = hidden;
  s.kv_heads = kv_heads;
  return s;
}

ModelShape Llama3With8B() {
  ModelShape s = Shape("llama", 32, 4096);
  s.vocab = 128256;
  return s;
}

TEST(Presets, StageLayers) {
  const std::pair<int, std::vector<int>> table[] = {{16, {5, 10, 15}},  {24, {8, 15, 23}},
                                                    {28, {9, 18, 26}},  {30, {9, 19, 28}},
                                                    {32, {10, 20, 30}}, {36, {11, 23, 34}}};
  for (const auto& [layers, stages] : table)
    EXPECT_EQ(StageLayers(Shape("llama", layers, 4096)), stages) << layers;
}

TEST(Presets, StagesOfSmallModelsAscendBelowTheLast) {
  for (int layers = 1; layers <= 12; ++layers) {
    const std::vector<int> stages = StageLayers(Shape("llama", layers, 64));
    for (size_t i = 0; i < stages.size(); ++i) {
      EXPECT_GE(stages[i], 1);
      EXPECT_LT(stages[i], layers);
      EXPECT_TRUE(i == 0 || stages[i] > stages[i - 1]);
    }
    EXPECT_EQ(stages.empty(), layers == 1) << layers;
  }
}

TEST(Presets, TheBundledModelPrunesAfterItsRetrievalLayer) {
  ModelShape mini = Shape("llama", 10, 256);
  mini.name = "coppice-mini";
  EXPECT_EQ(StageLayers(mini), (std::vector<int>{4, 6, 8}));
  mini.name = "another";
  EXPECT_EQ(StageLayers(mini), (std::vector<int>{3, 6, 9}));
}

TEST(Presets, SlimInferBudgets) {
  EXPECT_EQ(SlimInferBudgets(Llama3With8B(), 65536), (std::vector<int64_t>{8192, 4096, 2048}));
  // Mistral-7B has the same sizes but for the vocabulary, and nothing published.
  EXPECT_EQ(SlimInferBudgets(Shape("llama", 32, 4096), 65536), (std::vector<int64_t>{16384, 8192, 4096}));
  EXPECT_EQ(SlimInferBudgets(Shape("qwen2", 28, 3584, 4), 32768), (std::vector<int64_t>{12288, 6144, 4096}));
  // No published budgets: a quarter, an eighth, a sixteenth, at least 2k. Llama-2-7B has as many kv heads as
  // heads.
  EXPECT_EQ(SlimInferBudgets(Shape("llama", 32, 4096, 32), 65536), (std::vector<int64_t>{16384, 8192, 4096}));
  EXPECT_EQ(SlimInferBudgets(Shape("llama", 16, 2048), 12000), (std::vector<int64_t>{2944, 2048, 2048}));
  EXPECT_EQ(SlimInferBudgets(Shape("llama", 16, 2048), 1), (std::vector<int64_t>{2048, 2048, 2048}));
}

TEST(Presets, Ftp) {
  const std::pair<int, int> dense[] = {{16, 5},  {24, 8},  {28, 10}, {30, 10},
                                       {32, 10}, {36, 10}, {64, 10}, {80, 10}};
  for (const auto& [layers, f] : dense) EXPECT_EQ(FtpDenseLayers(Shape("llama", layers, 4096)), f) << layers;
  EXPECT_EQ(FtpEta(Llama3With8B()), 0.90);
  EXPECT_EQ(FtpEta(Shape("llama", 32, 4096)), 0.93);  // Mistral-7B
  EXPECT_EQ(FtpEta(Shape("qwen2", 28, 3584)), 0.95);
  EXPECT_EQ(FtpEta(Shape("qwen2", 64, 5120)), 0.90);
  EXPECT_EQ(FtpEta(Shape("qwen2", 80, 8192)), 0.93);
  EXPECT_EQ(FtpEta(Shape("qwen2", 24, 896)), 0.93);
  EXPECT_EQ(FtpEta(Shape("bloom", 30, 4096)), 0.93);
}

}  // namespace
}  // namespace coppice
