// What a bare method name means for a model: the published settings where there are some, else the rules that
// reproduce every published schedule (spec of the methods, section 16).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/shape.h"

namespace coppice {

// SlimInfer's (and LazyLLM's) stages: round(L {10, 20, 30} / 32), strictly ascending and below L. The bundled
// model is an exception: it retrieves in layer 3 of 10, so nothing may be pruned before layer 4
// (models/README.md).
std::vector<int> StageLayers(const ModelShape& shape);

// SlimInfer's budgets at those stages for a prompt of `tokens`: (8, 4, 2)k for Llama-3.1-8B, (12, 6, 4)k for
// Qwen2.5-7B, else a quarter, an eighth, a sixteenth of the prompt, at least 2,048 each.
std::vector<int64_t> SlimInferBudgets(const ModelShape& shape, int64_t tokens);

// FTP: the layers that stay dense (10 where L >= 28, else round(10 L / 32)) and the share of attention mass.
int FtpDenseLayers(const ModelShape& shape);
double FtpEta(const ModelShape& shape);

}  // namespace coppice
