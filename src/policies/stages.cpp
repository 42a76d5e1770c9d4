#include "policies/stages.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace coppice {

std::vector<int> ReadLayers(SpecReader& read, const MethodSpec& spec, const std::vector<int>& fallback,
                            const ModelShape& shape) {
  const auto written = spec.values.find("layers");
  if (written != spec.values.end() && written->second == "none") {
    read.Choice("layers", {"none"});
    return {};
  }
  std::vector<int> layers = read.Integers("layers", fallback, 1, shape.layers - 1);
  for (size_t s = 1; s < layers.size(); ++s) {
    if (layers[s] <= layers[s - 1]) {
      throw Error("--prune {}: layers={} must ascend", spec.name, fmt::join(layers, "/"));
    }
  }
  return layers;
}

std::vector<double> ReadKeep(SpecReader& read, const MethodSpec& spec, size_t stages, double high) {
  std::vector<double> keep = read.Numbers("keep", {0.5}, 1e-6, high);
  if (keep.size() == 1) return std::vector<double>(std::max<size_t>(stages, 1), keep.front());
  if (keep.size() != stages) {
    throw Error("--prune {}: keep has {} values for {} layers", spec.name, keep.size(), stages);
  }
  return keep;
}

std::string LayersText(const std::vector<int>& layers) {
  return layers.empty() ? "none" : fmt::format("{}", fmt::join(layers, "/"));
}

std::string StageReason(const std::vector<int>& layers, const ModelShape& shape) {
  return layers.empty() ? fmt::format("{} layers leave no stage to prune at", shape.layers) : "";
}

int StageOf(const std::vector<int>& layers, int layer) {
  const auto it = std::find(layers.begin(), layers.end(), layer);
  return it == layers.end() ? -1 : static_cast<int>(it - layers.begin());
}

namespace {
// Far above the rounding of a product of two doubles (2e-16), far below the share of one row in 2^24.
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
  // Infinity is the rank of protected rows alone; a NaN stays one.
  for (float& r : rank) r = std::min(r, std::numeric_limits<float>::max());
  std::fill_n(rank.begin(), first, std::numeric_limits<float>::infinity());
  std::fill_n(rank.rbegin(), last, std::numeric_limits<float>::infinity());
  return be.TopK(TensorView(rank.data(), DType::kF32, 1, rows), count);
}

}  // namespace coppice
