#include "policies/score_sum.h"

#include <algorithm>
#include <utility>

namespace coppice {

namespace {

// The scores of the rows at `to`; 0 for rows that `from` does not have.
std::vector<float> Matched(std::span<const float> scores, std::span<const int32_t> from,
                           std::span<const int32_t> to) {
  std::vector<float> matched(to.size());
  size_t old = 0;
  for (size_t row = 0; row < to.size(); ++row) {
    while (old < from.size() && from[old] < to[row]) ++old;
    if (old < from.size() && from[old] == to[row]) matched[row] = scores[old];
  }
  return matched;
}

}  // namespace

std::vector<float> ScoreSum::Add(int layer, std::span<const float> scores,
                                 std::span<const int32_t> positions) {
  if (!window_.empty() && window_.back().layer >= layer) window_.clear();
  while (!window_.empty() && window_.front().layer <= layer - layers_) window_.pop_front();
  if (!std::equal(positions.begin(), positions.end(), positions_.begin(), positions_.end())) {
    for (LayerScores& held : window_) held.scores = Matched(held.scores, positions_, positions);
    positions_.assign(positions.begin(), positions.end());
  }
  window_.push_back({layer, {scores.begin(), scores.end()}});
  std::vector<float> sum = window_.front().scores;
  for (auto held = window_.begin() + 1; held != window_.end(); ++held) {
    for (size_t row = 0; row < sum.size(); ++row) sum[row] += held->scores[row];
  }
  return sum;
}

}  // namespace coppice
