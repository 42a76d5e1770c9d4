// What `coppice tune` prints.
#pragma once

#include <string>
#include <vector>

#include "eval/tune/tune.h"

namespace coppice::cli {

// For each length: the tasks that were used and left out, a table of the methods' settings, with `all` also
// every candidate.
void PrintTuned(const TuneResult& result, const std::vector<QualityBudget>& budgets, bool all);

// Of the first budget and the longest length that have one. Throws Error, saying why, where nothing keeps a
// budget and is faster than dense.
std::string BestSpec(const TuneResult& result, const std::vector<QualityBudget>& budgets);

}  // namespace coppice::cli
