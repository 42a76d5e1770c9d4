// The predictors' tensors, for the sources that speak to libtorch.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "train/sdtp_net.h"

namespace coppice {

struct SdtpNet::Torch {
  struct Parameter {
    std::string name;
    at::Tensor value;
    at::Tensor mean, square;  // AdamW's moments
    bool decays = false;      // biases and LayerNorm do not
  };
  int64_t d = 0;
  int64_t steps = 0;
  std::vector<Parameter> parameters;  // kPerStage for each stage, in the side file's order

  // s [rows] of x [rows, d]; recorded.
  at::Tensor Score(int stage, const at::Tensor& x) const;
};

// Both losses of one stage, recorded, unweighted; targets [rows] of the rows that `score` belongs to.
struct StageLosses {
  at::Tensor mse;
  at::Tensor rank;  // undefined where all targets tie
};
StageLosses LossesOfStage(const at::Tensor& score, std::span<const float> targets, Random& random);

}  // namespace coppice
