// The router of a mixture of experts: which experts a row runs, and with what weights.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace coppice {

enum class RouterKind {
  kSoftmaxTopK,  // a softmax over all experts; the best k keep their probabilities
  kTopKSoftmax,  // the best k; a softmax over them
  kSigmoidTopK,  // a sigmoid of each; the best k by sigmoid and bias keep their sigmoids
};

struct RouterRule {
  RouterKind kind = RouterKind::kSoftmaxTopK;
  int used = 0;           // k, from 1 to the number of experts
  bool normalise = true;  // weights of a row are divided by their sum
  float scale = 1;        // of all weights, at the end
};

// The experts and weights of each row, k after k. Experts of a row ascend.
struct Routes {
  std::span<int32_t> experts;  // [m * k]
  std::span<float> weights;    // [m * k]
};

// logits [m, E] fp32 and `bias` [1, E] fp32 or empty, in host memory. The bias changes who is chosen, not the
// weights. Of equal experts the first is chosen; a NaN ranks last. A row's result depends on its logits
// alone.
void RouteRows(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to);

}  // namespace coppice
