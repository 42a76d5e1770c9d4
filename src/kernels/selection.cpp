#include "kernels/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace coppice {
namespace {

// An integer that ascends in rank order: the score, mapped so that larger scores are smaller, above the row.
// Comparing integers is several times faster than a comparator that follows an index, and a NaN cannot break
// the order.
uint64_t RankKey(float score, int64_t row) {
  uint32_t descending = std::numeric_limits<uint32_t>::max();  // NaN; no number maps to this
  if (!std::isnan(score)) {
    const uint32_t bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
    const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    descending = ~ascending;
  }
  return static_cast<uint64_t>(descending) << 32 | static_cast<uint32_t>(row);
}

int32_t RowOf(uint64_t key) { return static_cast<int32_t>(key & 0xffffffffu); }

std::vector<uint64_t> RankKeys(std::span<const float> scores) {
  std::vector<uint64_t> keys(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) keys[i] = RankKey(scores[i], static_cast<int64_t>(i));
  return keys;
}

TokenSet FirstRows(std::span<const uint64_t> keys, int64_t k) {
  std::vector<int32_t> rows(static_cast<size_t>(k));
  std::transform(keys.begin(), keys.begin() + k, rows.begin(), RowOf);
  return TokenSet::Of(std::move(rows), static_cast<int64_t>(keys.size()));
}

std::span<const float> ScoresOf(const TensorView& scores) {
  COPPICE_CHECK(scores.dtype == DType::kF32 && (scores.rows == 1 || scores.cols == 0));
  if (scores.empty()) return {};
  return scores.Row<float>(0);
}

}  // namespace

TokenSet SelectTopK(const TensorView& scores, int64_t k) {
  const std::span<const float> s = ScoresOf(scores);
  const int64_t n = static_cast<int64_t>(s.size());
  if (k >= n) return TokenSet::All(n);
  if (k <= 0) return TokenSet::None(n);
  std::vector<uint64_t> keys = RankKeys(s);
  std::nth_element(keys.begin(), keys.begin() + k, keys.end());
  return FirstRows(keys, k);
}

TokenSet SelectSmallestSetWithMass(const TensorView& scores, double eta) {
  const std::span<const float> s = ScoresOf(scores);
  const int64_t n = static_cast<int64_t>(s.size());
  if (n == 0 || !(eta < 1)) return TokenSet::All(n);
  std::vector<uint64_t> keys = RankKeys(s);
  std::sort(keys.begin(), keys.end());
  std::vector<double> mass(s.size());  // mass[i] is the sum of the best i + 1 scores
  double sum = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const float score = s[static_cast<size_t>(RowOf(keys[i]))];
    if (!std::isnan(score)) sum += score;
    mass[i] = sum;
  }
  if (!(sum > 0)) return TokenSet::All(n);
  const double target = eta * sum;
  // Not a binary search: negative scores make the prefix sums fall again.
  const auto reached = std::find_if(mass.begin(), mass.end(), [target](double m) { return m >= target; });
  if (reached == mass.end()) return TokenSet::All(n);
  return FirstRows(keys, reached - mass.begin() + 1);
}

}  // namespace coppice
