#include "base/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace coppice {

double KendallTau(std::span<const float> a, std::span<const float> b) {
  COPPICE_CHECK(a.size() == b.size());
  int64_t agreeing = 0;  // concordant pairs minus discordant pairs
  int64_t a_pairs = 0;   // pairs without a tie in a
  int64_t b_pairs = 0;
  for (size_t i = 1; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int in_a = (a[i] > a[j]) - (a[i] < a[j]);
      const int in_b = (b[i] > b[j]) - (b[i] < b[j]);
      agreeing += in_a * in_b;
      a_pairs += in_a * in_a;
      b_pairs += in_b * in_b;
    }
  }
  if (a_pairs == 0 || b_pairs == 0) return 0;
  return static_cast<double>(agreeing) /
         std::sqrt(static_cast<double>(a_pairs) * static_cast<double>(b_pairs));
}

namespace {

std::vector<double> Ranks(std::span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return ranks;
}

}  // namespace

double SpearmanRho(std::span<const float> a, std::span<const float> b) {
  COPPICE_CHECK(a.size() == b.size());
  const std::vector<double> x = Ranks(a);
  const std::vector<double> y = Ranks(b);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;  // of the ranks, with or without ties
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx == 0 || yy == 0 ? 0 : xy / std::sqrt(xx * yy);
}

}  // namespace coppice
