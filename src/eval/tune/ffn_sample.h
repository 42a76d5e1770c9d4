// Rows of a reference text as they enter each FFN of a model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "tensor/tensor.h"

namespace coppice {

struct FfnSample {
  int64_t calibrated = 0;      // the first rows of each tensor; the rest is held out
  std::vector<Tensor> layers;  // [calibrated + held out, d] fp32 each: the FFN's input before its norm

  TensorView HeldOut(size_t layer) const {
    return layers[layer].view().Rows(calibrated, layers[layer].rows() - calibrated);
  }
};

// MakeFfnProxies describes the pieces of the text. At most `most` rows calibrate, spread over the first four
// fifths of each piece, and a quarter as many are held out, spread over the last fifth. `progress`, which may
// be empty, gets the share that is done. Throws Error if there are fewer than 256 tokens, and Cancelled.
FfnSample SampleFfnInputs(const Engine& engine, std::span<const int32_t> tokens, int64_t most,
                          const std::function<void(double)>& progress, const std::atomic<bool>* cancelled);

}  // namespace coppice
