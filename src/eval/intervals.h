// Where a measured share and a difference of shares lie.
#pragma once

#include <span>

namespace coppice {

struct Interval {
  double low = 0;
  double high = 0;
};

// 95 %, Wilson's (1927), of a mean of `samples` scores in [0, 1]. Unlike score +- 2 standard errors it says
// something where all samples are right; for scores between 0 and 1 it is rather too wide than too narrow,
// because nothing varies more than right and wrong.
Interval WilsonInterval(double share, double samples);

// 95 %, of the mean of paired differences in [-1, 1], after Agresti and Min (2005): two samples are added, of
// which one has no difference and the other is half +1 and half -1. So the interval is not empty where no
// sample differs.
Interval PairedInterval(std::span<const double> differences);

}  // namespace coppice
