// What `coppice tune` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/tune/ffn_proxies.h"
#include "eval/tune/tune.h"

namespace coppice::cli {

// For each length: the tasks that were used and left out, and a table of the methods' settings; with `all`
// also every candidate.
void PrintTuned(const TuneResult& result, const std::vector<QualityBudget>& budgets, bool all);

// The best spec of the first budget and the longest length that have one. Throws Error, with the reason, if
// no setting keeps a budget and is faster than dense.
std::string BestSpec(const TuneResult& result, const std::vector<QualityBudget>& budgets);

// A table of how well each layer's proxy predicts its FFN, made from a text of `tokens` tokens.
void PrintProxies(const FfnProxyResult& made, int64_t tokens);

}  // namespace coppice::cli
