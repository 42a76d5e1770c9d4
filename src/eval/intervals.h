// Confidence intervals of a measured share and of a difference of shares.
#pragma once

#include <span>

namespace coppice {

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's 95 % interval (1927) of a mean of `samples` scores in [0, 1]. Unlike score +- 2 standard errors it
// is not empty if all samples are right. For scores between 0 and 1 it is too wide rather than too narrow,
// because no scores vary more than 0 and 1.
Interval WilsonInterval(double share, double samples);

// 95 % interval of the mean of paired differences in [-1, 1], after Agresti and Min (2005): two samples are
// added, one without a difference and one that is half +1 and half -1. So the interval is not empty if no
// sample differs.
Interval PairedInterval(std::span<const double> differences);

}  // namespace coppice
