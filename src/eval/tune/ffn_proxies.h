// Makes SPTS's proxies of a model's FFNs offline, as its paper does (arXiv 2601.13155): a reference text
// shows which channels of each FFN grow large, those stay, and their weights are replaced by factors of low
// rank. The file's format and the equations are in policies/methods/spts_proxy.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tensor/dtype.h"

namespace coppice {

struct FfnProxyOptions {
  int64_t channels = 0;       // D; 0: SptsProxySizeFor
  int64_t rank = 0;           // r; 0: SptsProxySizeFor
  int64_t tokens = 4096;      // calibrate at most; a quarter as many are held out
  std::string model = {};     // the model's name in the file
  DType type = DType::kBF16;  // of the matrices: BF16, F16 or F32
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(double share)> progress = {};  // of all the work; may be empty
};

// How well a layer's ||f(x)|| predicts ||F(x)|| over the held-out rows.
struct FfnProxyAgreement {
  double rho = 0;  // Spearman's rank correlation
  // The share of the 40 % of rows with the largest ||F(x)|| that ||f(x)|| puts among its 40 %; chance: 0.4.
  double overlap = 0;
};

struct FfnProxyResult {
  int64_t channels = 0;
  int64_t rank = 0;
  int64_t calibrated = 0;  // tokens
  int64_t held_out = 0;    // tokens
  std::vector<FfnProxyAgreement> layers;
};

// Runs pieces of `tokens`, evenly spread, densely through the model; writes the proxies of all layers to
// `path`; and compares the file's norms with the FFNs' on tokens that did not calibrate: the last fifth of
// each piece. A piece has at most 4,096 tokens, and no more than the context, and begins with the text's
// first token. Holds 4 bytes x d x layers for every calibration and held-out token. Throws Error if the text
// has fewer than 256 tokens, a size does not fit the model, the model has one layer or its weights are in a
// device's memory, or the file cannot be written; and Cancelled.
FfnProxyResult MakeFfnProxies(const Engine& engine, std::span<const int32_t> tokens, const std::string& path,
                              const FfnProxyOptions& options);

}  // namespace coppice
