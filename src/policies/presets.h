// The default settings of the methods for a model: the published ones if there are any, else rules that
// reproduce every published schedule (docs/methods.md). In a model with sliding windows on some layers, the
// layers of StageLayers, CoppiceLayers, UniPrefillLayers and GemFilterLayer move so that scores are taken in
// layers without a window.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/model_shape.h"

namespace coppice {

// round(layer L / 32) of a model of L = `layers`, for a layer that a paper gives for 32 layers.
int ScaledLayer(int layers, int layer);

// SlimInfer's and LazyLLM's stages: round(L {10, 20, 30} / 32), strictly ascending and below L. The bundled
// model is an exception: it retrieves in layer 3 of 10, so pruning may not begin before layer 4
// (models/README.md).
std::vector<int> StageLayers(const ModelShape& shape);

// coppice's stages: round(L {0.28, 0.5, 0.8}); where it keeps fixed shares, round(L {0.27, 0.5, 0.8}), which
// differs for 24 layers. SmolLM2 and Qwen2.5-Coder keep their answers with the first (docs/quality.md). For
// the bundled model StageLayers.
std::vector<int> CoppiceLayers(const ModelShape& shape);
std::vector<int> CoppiceShareLayers(const ModelShape& shape);

// SlimInfer's budgets at those stages for a prompt of `tokens`: (8, 4, 2)k for Llama-3.1-8B, (12, 6, 4)k for
// Qwen2.5-7B, else a quarter, an eighth, a sixteenth of the prompt, at least 2,048 each.
std::vector<int64_t> SlimInferBudgets(const ModelShape& shape, int64_t tokens);

// FTP: the layers that stay dense (10 where L >= 28, else round(10 L / 32)) and the share of attention mass.
int FtpDenseLayers(const ModelShape& shape);
double FtpEta(const ModelShape& shape);

// FlashPrefill's published thresholds, by architecture.
double FlashPrefillAlpha(const ModelShape& shape);

// The latest layer before which tokens may be parked so that no parked hidden state takes more memory than
// the keys and values it replaces. `parked_bytes` and `layer_bytes`: as in MethodContext; if they are
// unknown, L - ceil(d / (2 G c)).
int LastStageWithinMemory(const ModelShape& shape, int64_t parked_bytes = 0,
                          std::span<const int64_t> layer_bytes = {});

// SDTP's stages: evenly from a = round(L / 8) to L - 1; SDTP-low's five stages: from a in steps of round(5 L
// / 32). Small models get fewer, because equal stages are merged. The bundled model begins at layer 4 (see
// StageLayers).
std::vector<int> SdtpLayers(const ModelShape& shape, int stages);
std::vector<int> SdtpLowLayers(const ModelShape& shape);

// Static pruning: before layer 4, or L / 2 in a model of fewer than 8 layers; 0 if L is 1.
int StaticLayer(const ModelShape& shape);

// The layers after whose attention UniPrefill drops: 7, 11, ..., 27 of 32 layers as published for
// Llama-3.1-8B, else round(L {8, 12, ..., 28} / 32) - 1, strictly ascending. The bundled model begins at
// layer 3 (see StageLayers).
std::vector<int> UniPrefillLayers(const ModelShape& shape);

// FastKV: the layer whose attention chooses the rows of later layers. Published: 15 of Llama-3.1-8B's 32;
// else round(15 L / 32), L - 2 at most. The bundled model's is 4 (see StageLayers).
int FastKvLayer(const ModelShape& shape);

// GemFilter's filter layer. Published: 13 of Llama-3.1-8B's 32; else round(13 L / 32).
int GemFilterLayer(const ModelShape& shape);

// SPTS's published stages and budgets of Llama-3.1-8B and Qwen2.5-7B; for other models Llama's, with its
// layers scaled by L / 32.
struct SptsPreset {
  int begin = 0;
  std::vector<int> ends = {};
  std::vector<int64_t> keep = {};
  int64_t drop = 0;
};
SptsPreset SptsFor(const ModelShape& shape);

// PyramidInfer's published configurations (configs/*.json of its repository).
struct PyramidInferPreset {
  double r = 0.9;    // the ratio that the schedule ends at
  int interval = 1;  // layers from one pruning to the next
};
PyramidInferPreset PyramidInferFor(const ModelShape& shape);

// The sizes of SPTS's proxies of FFNs. Published: Llama-3.1-8B, Qwen2.5-7B and openPangu-Embedded-1B; the
// rule for other shapes is openPangu's, ffn / 6 channels and rank d / 12, both in multiples of 16.
struct SptsProxySize {
  int64_t channels = 0;  // at most the FFN's
  int64_t rank = 0;      // at most d and `channels`
};
SptsProxySize SptsProxySizeFor(const ModelShape& shape);

}  // namespace coppice
