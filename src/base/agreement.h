// Measures of how well two scores rank the same items alike.
#pragma once

#include <span>

namespace coppice {

// Kendall's tau-b: +1 for the same order, 0 for no correlation, -1 for the reverse order. Ties count as in
// Kendall's correction. 0 if all values of one side tie. O(n^2).
double KendallTau(std::span<const float> a, std::span<const float> b);

// Spearman's rho: the correlation of ranks, where ties get their mean rank. 0 if all values of one side tie.
double SpearmanRho(std::span<const float> a, std::span<const float> b);

}  // namespace coppice
