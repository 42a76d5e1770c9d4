// The papers' schedules, and those of other models by the rule that gives them. LazyLLM's memory clamp is not
// part of SlimInfer's stages: LastStageWithinMemory has it.
#include "policies/presets.h"
#include "shape_edit.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

ModelShape Shape(const char* architecture, int layers, int64_t hidden, int kv_heads = 8) {
  ModelShape s;
  s.architecture = architecture;
  s.hidden = hidden;
  s.layers.assign(static_cast<size_t>(layers), {.kv_heads = kv_heads});
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

// Gemma 3 270m: layers 5, 11 and 17 (from 0) attend without the window.
TEST(Presets, ScoresAreTakenInLayersWithoutAWindow) {
  ModelShape gemma = Shape("gemma3", 18, 640, 1);
  for (size_t l = 0; l < 18; ++l) gemma.layers[l].window = l % 6 == 5 ? 0 : 512;
  EXPECT_EQ(StageLayers(gemma), (std::vector<int>{6, 12}));
  EXPECT_EQ(CoppiceLayers(gemma), (std::vector<int>{6, 12}));
  EXPECT_EQ(CoppiceShareLayers(gemma), (std::vector<int>{6, 12}));
  EXPECT_EQ(UniPrefillLayers(gemma), (std::vector<int>{5, 11}));
  EXPECT_EQ(GemFilterLayer(gemma), 5);
  // Windows on all layers, or on none: the layers are those of any model.
  SetInAll(gemma, &LayerShape::window, 512);
  EXPECT_EQ(StageLayers(gemma), StageLayers(Shape("llama", 18, 640)));
  SetInAll(gemma, &LayerShape::window, 0);
  EXPECT_EQ(StageLayers(gemma), StageLayers(Shape("llama", 18, 640)));
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

TEST(Presets, LastStageWithinMemory) {
  const auto last = [](int layers, int64_t hidden, int kv_heads, int head_dim) {
    ModelShape s = Shape("llama", layers, hidden, kv_heads);
    SetInAll(s, &LayerShape::head_dim, head_dim);
    return LastStageWithinMemory(s);
  };
  EXPECT_EQ(last(16, 2048, 8, 64), 14);    // Llama-3.2-1B: 15 -> 14
  EXPECT_EQ(last(24, 896, 2, 64), 20);     // Qwen2.5-0.5B: 23 -> 20
  EXPECT_EQ(last(28, 1536, 2, 128), 25);   // Qwen2.5-1.5B: 26 -> 25
  EXPECT_EQ(last(28, 3584, 4, 128), 24);   // Qwen2.5-7B: 26 -> 24
  EXPECT_EQ(last(30, 4096, 32, 128), 29);  // BLOOM-7B: 28 stays
  EXPECT_EQ(last(32, 4096, 8, 128), 30);   // Llama-3.1-8B: 30 is break-even
  EXPECT_EQ(last(32, 4096, 32, 128), 31);  // Llama-2-7B
  EXPECT_EQ(last(36, 4096, 8, 128), 34);   // Qwen3-8B
  EXPECT_EQ(last(36, 2048, 2, 128), 32);   // Qwen2.5-3B: 34 -> 32
  // Llama-3.1-8B with keys and values in Q8_0: 2,176 bytes per layer, and 8,192 for a parked state in bf16.
  const ModelShape llama = Shape("llama", 32, 4096, 8);
  EXPECT_EQ(LastStageWithinMemory(llama, 2 * 4096, std::vector<int64_t>(32, 2 * 8 * 128 * 34 / 32)), 28);
  EXPECT_EQ(LastStageWithinMemory(llama, 2 * 4096, std::vector<int64_t>(32, 2 * 2 * 8 * 128)), 30);
  // Layers of different widths: those above the stage must save as much as is parked.
  std::vector<int64_t> mixed(32, 1024);
  mixed[31] = 4096;
  EXPECT_EQ(LastStageWithinMemory(llama, 8192, mixed), 27);
  mixed[31] = 8192;
  EXPECT_EQ(LastStageWithinMemory(llama, 8192, mixed), 31);
}

TEST(Presets, SdtpLayers) {
  const std::pair<int, std::vector<int>> table[] = {
      {16, {2, 3, 5, 6, 8, 9, 11, 12, 14, 15}},     {24, {3, 5, 7, 10, 12, 14, 16, 19, 21, 23}},
      {28, {4, 7, 9, 12, 14, 17, 19, 22, 24, 27}},  {30, {4, 7, 10, 12, 15, 18, 21, 23, 26, 29}},
      {32, {4, 7, 10, 13, 16, 19, 22, 25, 28, 31}}, {36, {5, 8, 12, 15, 18, 22, 25, 28, 32, 35}}};
  for (const auto& [layers, stages] : table)
    EXPECT_EQ(SdtpLayers(Shape("llama", layers, 4096), 10), stages) << layers;
  EXPECT_EQ(SdtpLowLayers(Shape("llama", 32, 4096)), (std::vector<int>{4, 9, 14, 19, 24}));
  EXPECT_EQ(SdtpLayers(Shape("llama", 32, 4096), 1), std::vector<int>{4});
  ModelShape mini = Shape("llama", 10, 256);
  mini.name = "coppice-mini";
  EXPECT_EQ(SdtpLayers(mini, 10).front(), 4);
}

TEST(Presets, SdtpLayersOfSmallModelsAscend) {
  for (int layers = 1; layers <= 40; ++layers) {
    const ModelShape shape = Shape("llama", layers, 64);
    for (const std::vector<int>& stages :
         {SdtpLayers(shape, 10), SdtpLayers(shape, 1), SdtpLayers(shape, 39), SdtpLowLayers(shape)}) {
      EXPECT_EQ(stages.empty(), layers == 1) << layers;
      for (size_t i = 0; i < stages.size(); ++i) {
        EXPECT_TRUE(stages[i] >= 1 && stages[i] < layers && (i == 0 || stages[i] > stages[i - 1])) << layers;
      }
    }
  }
}

TEST(Presets, UniPrefillLayers) {
  EXPECT_EQ(UniPrefillLayers(Shape("llama", 32, 4096)), (std::vector<int>{7, 11, 15, 19, 23, 27}));
  EXPECT_EQ(UniPrefillLayers(Shape("llama", 30, 576)), (std::vector<int>{7, 10, 14, 18, 22, 25}));
  EXPECT_EQ(UniPrefillLayers(Shape("llama", 1, 64)), std::vector<int>{});
  ModelShape mini = Shape("llama", 10, 256);
  mini.name = "coppice-mini";
  EXPECT_EQ(UniPrefillLayers(mini), (std::vector<int>{3, 4, 5, 7, 8}));
  for (int layers = 2; layers <= 40; ++layers) {
    const std::vector<int> stages = UniPrefillLayers(Shape("llama", layers, 64));
    ASSERT_FALSE(stages.empty()) << layers;
    for (size_t i = 0; i < stages.size(); ++i)
      EXPECT_TRUE(stages[i] >= 1 && stages[i] < layers && (i == 0 || stages[i] > stages[i - 1])) << layers;
  }
}

TEST(Presets, FastKvLayer) {
  EXPECT_EQ(FastKvLayer(Shape("llama", 32, 4096)), 15);
  EXPECT_EQ(FastKvLayer(Shape("llama", 40, 5120)), 19);
  EXPECT_EQ(FastKvLayer(Shape("llama", 30, 576)), 14);
  EXPECT_EQ(FastKvLayer(Shape("llama", 2, 64)), 0);
  EXPECT_EQ(FastKvLayer(Shape("llama", 1, 64)), 0);
  ModelShape mini = Shape("llama", 10, 256);
  mini.name = "coppice-mini";
  EXPECT_EQ(FastKvLayer(mini), 4);
}

TEST(Presets, GemFilterLayer) {
  EXPECT_EQ(GemFilterLayer(Shape("llama", 32, 4096)), 13);
  EXPECT_EQ(GemFilterLayer(Shape("llama", 30, 576)), 12);
  EXPECT_EQ(GemFilterLayer(Shape("llama", 2, 64)), 1);
  EXPECT_EQ(GemFilterLayer(Shape("llama", 1, 64)), 0);
}

TEST(Presets, StaticAndPyramidInfer) {
  EXPECT_EQ(StaticLayer(Shape("llama", 32, 4096)), 4);
  EXPECT_EQ(StaticLayer(Shape("llama", 8, 4096)), 4);
  EXPECT_EQ(StaticLayer(Shape("llama", 6, 4096)), 3);
  EXPECT_EQ(StaticLayer(Shape("llama", 2, 4096)), 1);
  EXPECT_EQ(StaticLayer(Shape("llama", 1, 4096)), 0);
  EXPECT_EQ(PyramidInferFor(Shape("llama", 32, 4096)).r, 0.9);
  EXPECT_EQ(PyramidInferFor(Shape("llama", 40, 5120)).r, 0.8);
  EXPECT_EQ(PyramidInferFor(Shape("llama", 40, 5120)).interval, 2);
  EXPECT_EQ(PyramidInferFor(Shape("llama", 80, 8192)).interval, 3);
  EXPECT_EQ(PyramidInferFor(Shape("qwen2", 28, 3584)).interval, 1);
}

TEST(Presets, FlashPrefill) {
  EXPECT_EQ(FlashPrefillAlpha(Llama3With8B()), 0.18);
  EXPECT_EQ(FlashPrefillAlpha(Shape("qwen2", 28, 3584)), 0.08);
  EXPECT_EQ(FlashPrefillAlpha(Shape("bloom", 30, 4096)), 0.12);
}

TEST(Presets, SptsProxies) {
  const auto size = [](ModelShape shape, int64_t ffn) {
    SetInAll(shape, &LayerShape::ffn, ffn);
    const SptsProxySize of = SptsProxySizeFor(shape);
    return std::pair(of.channels, of.rank);
  };
  EXPECT_EQ(size(Llama3With8B(), 14336), std::pair(512l, 192l));
  EXPECT_EQ(size(Shape("qwen2", 28, 3584), 18944), std::pair(1024l, 256l));
  EXPECT_EQ(size(Shape("pangu", 26, 1536), 6144), std::pair(1024l, 128l));
  EXPECT_EQ(size(Shape("llama", 30, 576), 1536), std::pair(256l, 48l));
  EXPECT_EQ(size(Shape("llama", 2, 64), 128), std::pair(16l, 16l));
  EXPECT_EQ(size(Shape("llama", 2, 8), 12), std::pair(12l, 8l));
}

}  // namespace
}  // namespace coppice
