// The predictors' tensors, for the sources that use libtorch.
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
    bool decays = false;      // false for biases and LayerNorm
  };
  int64_t d = 0;
  int64_t steps = 0;
  std::vector<Parameter> parameters;  // kPerStage per stage, in the order of the side file

  // s [rows] for x [rows, d]; recorded for autograd.
  at::Tensor Score(int stage, const at::Tensor& x) const;
};

// Both losses of one stage, unweighted and recorded for autograd. `targets` are those of the rows of `score`.
struct StageLosses {
  at::Tensor mse;
  at::Tensor rank;  // undefined if all targets tie
};
StageLosses LossesOfStage(const at::Tensor& score, std::span<const float> targets, Random& random);

}  // namespace coppice
