// The first pass of GemFilter (policies/methods/gemfilter.h): a model's first layers read the whole prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/transformer.h"

namespace coppice {

// The work of a dense pass of `tokens` tokens through layers 0 to `layer`, without the head. The last of them
// computes its keys and values, and one row of the rest.
double FilterFlops(const ModelShape& shape, int64_t tokens, int layer);

struct FilterReading {
  std::vector<float> scores;  // [tokens]: the mean over heads of (1) of methods/gemfilter.cpp
  double flops = 0;
};

// `ws` may be the workspace of a run that has not begun its first layer. `control.progress` gets the share
// done. Throws Cancelled.
FilterReading RunFilter(const Transformer& model, std::span<const int32_t> tokens, int layer, Workspace& ws,
                        const RunControl& control, Backend& be, Split* split = nullptr);

}  // namespace coppice
