#include "eval/intervals.h"

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

constexpr double kZ = 1.959964;  // of a normal distribution's middle 95 %

}  // namespace

Interval WilsonInterval(double share, double samples) {
  if (samples <= 0) return {0, 1};
  const double p = std::clamp(share, 0.0, 1.0);
  const double n = samples;
  const double middle = (p + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return {std::max(middle - half, 0.0), std::min(middle + half, 1.0)};
}

Interval PairedInterval(std::span<const double> differences) {
  double sum = 0, squares = 1;
  for (const double d : differences) {
    sum += d;
    squares += d * d;
  }
  const double n = static_cast<double>(differences.size()) + 2;
  const double mean = sum / n;
  const double half = kZ * std::sqrt(std::max(squares / n - mean * mean, 0.0) / n);
  return {std::max(mean - half, -1.0), std::min(mean + half, 1.0)};
}

}  // namespace coppice
