#include "policies/presets.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

namespace coppice {

namespace {

int RoundDiv(int numerator, int denominator) { return (2 * numerator + denominator) / (2 * denominator); }

bool Is(const ModelShape& s, const char* architecture, int layers, int64_t hidden) {
  return s.architecture == architecture && s.layer_count() == layers && s.hidden == hidden;
}

// Llama 3 and 3.1 8B; Mistral-7B has the same sizes but for the vocabulary.
bool IsLlama3With8B(const ModelShape& s) {
  return Is(s, "llama", 32, 4096) && s.vocab == 128256 &&
         std::ranges::all_of(s.layers, [](const LayerShape& layer) { return layer.kv_heads == 8; });
}

bool IsBundledModel(const ModelShape& s) { return s.name == "coppice-mini" && s.layer_count() == 10; }

// The layer in whose attention a method scores that would score in `layer`: in a model with sliding windows,
// or with layers that do not attend, the nearest one that attends without a window (of two the earlier),
// because scores end at a window. Never the last layer, after which nothing is left to drop.
int ScoringLayer(const ModelShape& shape, int layer) {
  if (std::ranges::all_of(shape.layers, &LayerShape::scores)) return layer;
  int nearest = -1;
  for (int l = 0; l + 1 < shape.layer_count(); ++l) {
    if (!shape.layer(l).scores()) continue;
    if (nearest < 0 || std::abs(l - layer) < std::abs(nearest - layer)) nearest = l;
  }
  return nearest < 0 ? layer : nearest;
}

// The same for a method that drops tokens before `layer`, by the scores of the layer below it.
int DroppingLayer(const ModelShape& shape, int layer) { return ScoringLayer(shape, layer - 1) + 1; }

}  // namespace

int ScaledLayer(int layers, int layer) { return RoundDiv(layers * layer, 32); }

std::vector<int> StageLayers(const ModelShape& shape) {
  if (IsBundledModel(shape)) return {4, 6, 8};
  std::vector<int> layers;
  for (const int of_32 : {10, 20, 30}) {
    const int layer = DroppingLayer(shape, ScaledLayer(shape.layer_count(), of_32));
    if (layer >= 1 && layer < shape.layer_count() && (layers.empty() || layer > layers.back()))
      layers.push_back(layer);
  }
  return layers;
}

namespace {

std::vector<int> LayersAt(const ModelShape& shape, std::initializer_list<double> depths) {
  if (IsBundledModel(shape)) return StageLayers(shape);
  std::vector<int> layers;
  for (const double depth : depths) {
    const int layer = DroppingLayer(shape, static_cast<int>(std::lround(depth * shape.layer_count())));
    if (layer >= 1 && layer < shape.layer_count() && (layers.empty() || layer > layers.back()))
      layers.push_back(layer);
  }
  return layers;
}

}  // namespace

std::vector<int> CoppiceLayers(const ModelShape& shape) { return LayersAt(shape, {0.28, 0.5, 0.8}); }
std::vector<int> CoppiceShareLayers(const ModelShape& shape) { return LayersAt(shape, {0.27, 0.5, 0.8}); }

std::vector<int64_t> SlimInferBudgets(const ModelShape& shape, int64_t tokens) {
  if (IsLlama3With8B(shape)) return {8192, 4096, 2048};
  if (Is(shape, "qwen2", 28, 3584)) return {12288, 6144, 4096};  // Qwen2.5-7B
  std::vector<int64_t> budgets;
  int64_t share = tokens / 4;
  for (size_t s = 0; s < StageLayers(shape).size(); ++s, share /= 2) {
    budgets.push_back(std::max<int64_t>(share / 64 * 64, 2048));
  }
  return budgets;
}

int FtpDenseLayers(const ModelShape& shape) {
  return shape.layer_count() >= 28 ? 10 : RoundDiv(10 * shape.layer_count(), 32);
}

double FtpEta(const ModelShape& shape) {
  if (IsLlama3With8B(shape)) return 0.90;         // Llama3-8B-Instruct
  if (Is(shape, "qwen2", 28, 3584)) return 0.95;  // Qwen2-7B-Instruct
  if (Is(shape, "qwen2", 64, 5120)) return 0.90;  // Qwen1.5-32B-Chat
  return 0.93;                                    // Qwen2-72B-Instruct, and where nothing is published
}

int LastStageWithinMemory(const ModelShape& shape, int64_t parked_bytes,
                          std::span<const int64_t> layer_bytes) {
  const bool known = parked_bytes > 0 && !layer_bytes.empty();
  const int64_t parked = known ? parked_bytes : shape.hidden;
  int stage = shape.layer_count();
  for (int64_t saved = 0; saved < parked && stage > 0;) {
    --stage;
    saved += known ? layer_bytes[static_cast<size_t>(stage)] : 2 * shape.layer(stage).key_width();
  }
  return stage;
}

namespace {

int FirstSdtpLayer(const ModelShape& shape) {
  return IsBundledModel(shape) ? 4 : std::max(1, RoundDiv(shape.layer_count(), 8));
}

void AddStage(const ModelShape& shape, int layer, std::vector<int>& layers) {
  if (layer < shape.layer_count() && (layers.empty() || layer > layers.back())) layers.push_back(layer);
}

}  // namespace

std::vector<int> SdtpLayers(const ModelShape& shape, int stages) {
  const int first = FirstSdtpLayer(shape);
  std::vector<int> layers;
  for (int s = 0; s < stages; ++s) {
    const int span = std::max(0, shape.layer_count() - 1 - first);
    AddStage(shape, first + (stages == 1 ? 0 : RoundDiv(s * span, stages - 1)), layers);
  }
  return layers;
}

std::vector<int> SdtpLowLayers(const ModelShape& shape) {
  const int step = std::max(1, RoundDiv(5 * shape.layer_count(), 32));
  std::vector<int> layers;
  for (int s = 0; s < 5; ++s) AddStage(shape, FirstSdtpLayer(shape) + s * step, layers);
  return layers;
}

int StaticLayer(const ModelShape& shape) { return std::min(4, shape.layer_count() / 2); }

double FlashPrefillAlpha(const ModelShape& shape) {
  if (shape.architecture == "llama") return 0.18;  // Llama-3.1-8B-Instruct
  if (shape.architecture == "qwen2") return 0.08;  // Qwen2.5-7B-Instruct
  return 0.12;                                     // Qwen3-30B-A3B, and where nothing is published
}

std::vector<int> UniPrefillLayers(const ModelShape& shape) {
  const int least = IsBundledModel(shape) ? 3 : 1;
  std::vector<int> layers;
  for (int of32 = 8; of32 <= 28; of32 += 4) {
    const int layer = ScoringLayer(shape, std::max(RoundDiv(shape.layer_count() * of32, 32) - 1, least));
    if (layer < shape.layer_count() && (layers.empty() || layer > layers.back())) layers.push_back(layer);
  }
  return layers;
}

int FastKvLayer(const ModelShape& shape) {
  return IsBundledModel(shape)
             ? 4
             : std::clamp(RoundDiv(15 * shape.layer_count(), 32), 0, std::max(shape.layer_count() - 2, 0));
}

int GemFilterLayer(const ModelShape& shape) {
  return ScoringLayer(shape, RoundDiv(13 * shape.layer_count(), 32));
}

SptsPreset SptsFor(const ModelShape& shape) {
  if (Is(shape, "qwen2", 28, 3584))  // Qwen2.5-7B
    return {9, {12, 16, 20, 24}, {13000, 10000, 7000, 4000}, 2000};
  const std::vector<int64_t> budgets = {9000, 7000, 4000, 2000};
  if (IsBundledModel(shape)) return {4, {5, 6, 7, 8}, budgets, 1000};
  SptsPreset preset{ScaledLayer(shape.layer_count(), 10), {}, {}, 1000};
  const int scaled[] = {ScaledLayer(shape.layer_count(), 13), ScaledLayer(shape.layer_count(), 18),
                        ScaledLayer(shape.layer_count(), 23), ScaledLayer(shape.layer_count(), 28)};
  for (size_t stage = 0; stage < budgets.size(); ++stage) {
    const size_t before = preset.ends.size();
    if (scaled[stage] >= 1) AddStage(shape, scaled[stage], preset.ends);
    if (preset.ends.size() > before) preset.keep.push_back(budgets[stage]);
  }
  preset.begin = preset.ends.empty() ? 0 : std::min(preset.begin, preset.ends.front());
  return preset;
}

PyramidInferPreset PyramidInferFor(const ModelShape& shape) {
  if (Is(shape, "llama", 40, 5120)) return {.r = 0.8, .interval = 2};  // Llama-2-13B
  if (Is(shape, "llama", 80, 8192)) return {.r = 0.9, .interval = 3};  // Llama-2-70B, Llama-3-70B
  return {};                                                           // Llama-2-7B, Llama-3-8B
}

SptsProxySize SptsProxySizeFor(const ModelShape& shape) {
  if (IsLlama3With8B(shape)) return {.channels = 512, .rank = 192};
  if (Is(shape, "qwen2", 28, 3584)) return {.channels = 1024, .rank = 256};  // Qwen2.5-7B
  const auto sixteens = [](int64_t size, int64_t part) {
    return std::max<int64_t>(1, (size + 8 * part) / (16 * part)) * 16;
  };
  const int64_t channels = std::min(sixteens(shape.NarrowestFfn(), 6), shape.NarrowestFfn());
  return {.channels = channels, .rank = std::min({sixteens(shape.hidden, 12), shape.hidden, channels})};
}

}  // namespace coppice
