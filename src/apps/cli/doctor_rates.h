// What the engine's own kernels reach on this machine, measured in a second, for `coppice doctor`.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/open_model.h"
#include "kernels/backend.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace coppice::cli {

// Of one weight matrix, with all threads of the backend. Medians.
struct ProductRates {
  double flops = 0;           // a second, in products of as many rows as a tile of a prefill has
  double packed_values = 0;   // weights a second that a prefill brings into the layout of its products
  double decoded_values = 0;  // weights a second in a product of one row
};
// Takes about `seconds`; longer where a product of a few rows takes longer.
ProductRates MeasureProducts(Backend& backend, const TensorView& weight, double seconds);

// Random weights of a type: a matrix of a size that models have.
Tensor RandomWeights(DType type);

// FLOPs a second of attention in the model's first layer that attends, over 2,048 keys; 0 if none does.
double MeasureAttention(Backend& backend, const ModelConfig& config, const Weights& weights, double seconds);

// The largest matrix of the type that most of the layers' weights have. Empty if they have none.
TensorView MainWeight(const Weights& weights);

}  // namespace coppice::cli
