#include "policies/stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coppice {

Keys LayersKey(std::vector<int>& layers, const ModelShape& shape, std::string_view meaning,
               std::string_view fallback, std::string_view range) {
  return Keys("layers", &layers, 1, shape.layer_count() - 1, meaning, fallback, range).Check([&layers] {
    const auto falls = std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>());
    return falls == layers.end() ? "" : "must ascend";
  });
}

std::string StageReason(const std::vector<int>& layers, const ModelShape& shape) {
  return layers.empty() ? fmt::format("{} layers leave no stage to prune at", shape.layer_count()) : "";
}

int StageOf(const std::vector<int>& layers, int layer) {
  const auto it = std::find(layers.begin(), layers.end(), layer);
  return it == layers.end() ? -1 : static_cast<int>(it - layers.begin());
}

namespace {
// Far above the rounding error of a product of two doubles (2e-16), far below the share of one row in 2^24.
constexpr double kRounding = 1e-12;
}  // namespace

int64_t CeilShare(double share, int64_t count) {
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(count) * (1 - kRounding)));
}

int64_t RoundShare(double share, int64_t count) {
  return static_cast<int64_t>(std::floor(share * static_cast<double>(count) * (1 + kRounding) + 0.5));
}

int64_t RowsBelow(std::span<const int32_t> positions, int64_t limit) {
  return std::lower_bound(positions.begin(), positions.end(), limit) - positions.begin();
}

TokenSet BestRows(std::span<const float> scores, int64_t count, int64_t first, int64_t last, Backend& be) {
  const auto rows = static_cast<int64_t>(scores.size());
  first = std::min(first, rows);
  last = std::min(last, rows - first);
  count = std::max(count, first + last);
  if (count >= rows) return TokenSet::All(rows);
  std::vector<float> rank(scores.begin(), scores.end());
  // Only protected rows rank at infinity. A NaN stays a NaN.
  for (float& r : rank) r = std::min(r, std::numeric_limits<float>::max());
  std::fill_n(rank.begin(), first, std::numeric_limits<float>::infinity());
  std::fill_n(rank.rbegin(), last, std::numeric_limits<float>::infinity());
  return be.TopK(TensorView(rank.data(), DType::kF32, 1, rows), count);
}

}  // namespace coppice
