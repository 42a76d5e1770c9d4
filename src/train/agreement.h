// How far two scores of the same tokens agree in order.
#pragma once

#include <span>

namespace coppice {

// Kendall's tau-b: +1 the same order, 0 none, -1 reversed; ties count as Kendall's correction has it. 0 where either
// side is all ties. O(n^2).
double KendallTau(std::span<const float> a, std::span<const float> b);

// Spearman's rho: the correlation of ranks, ties at their mean rank. 0 where either side is all ties.
double SpearmanRho(std::span<const float> a, std::span<const float> b);

}  // namespace coppice
