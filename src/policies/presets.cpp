#include "policies/presets.h"

#include <algorithm>

namespace coppice {

namespace {

int RoundDiv(int numerator, int denominator) { return (2 * numerator + denominator) / (2 * denominator); }

bool Is(const ModelShape& s, const char* architecture, int layers, int64_t hidden) {
  return s.architecture == architecture && s.layers == layers && s.hidden == hidden;
}

// Llama 3 and 3.1 8B; Mistral-7B has the same sizes but for the vocabulary.
bool IsLlama3With8B(const ModelShape& s) {
  return Is(s, "llama", 32, 4096) && s.kv_heads == 8 && s.vocab == 128256;
}

bool IsBundledModel(const ModelShape& s) { return s.name == "coppice-mini" && s.layers == 10; }

}  // namespace

std::vector<int> StageLayers(const ModelShape& shape) {
  if (IsBundledModel(shape)) return {4, 6, 8};
  std::vector<int> layers;
  for (const int tenth : {10, 20, 30}) {
    const int layer = RoundDiv(shape.layers * tenth, 32);
    if (layer >= 1 && layer < shape.layers && (layers.empty() || layer > layers.back()))
      layers.push_back(layer);
  }
  return layers;
}

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
  return shape.layers >= 28 ? 10 : RoundDiv(10 * shape.layers, 32);
}

double FtpEta(const ModelShape& shape) {
  if (IsLlama3With8B(shape)) return 0.90;         // Llama3-8B-Instruct
  if (Is(shape, "qwen2", 28, 3584)) return 0.95;  // Qwen2-7B-Instruct
  if (Is(shape, "qwen2", 64, 5120)) return 0.90;  // Qwen1.5-32B-Chat
  return 0.93;                                    // Qwen2-72B-Instruct, and where nothing is published
}

}  // namespace coppice
