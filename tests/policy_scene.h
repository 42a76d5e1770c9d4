// A hand-made observation: what a policy would see after the attention of a layer, without a model.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/backend.h"
#include "policies/policy.h"

namespace coppice {

class Scene {
 public:
  // Rows at positions 0 .. rows - 1.
  explicit Scene(int64_t rows, int layer = 20) : Scene(Count(rows), rows, layer) {}
  Scene(std::vector<int32_t> positions, int64_t prompt_tokens, int layer) : positions_(std::move(positions)) {
    seen.layer = layer;
    seen.layers = 32;
    seen.prompt_tokens = prompt_tokens;
    seen.positions = positions_;
  }
  Scene(const Scene&) = delete;  // `seen` points into it
  Scene& operator=(const Scene&) = delete;

  Scene& Mass(int queries, const std::vector<float>& mass) {
    return Mass(Needs::Mass{.queries = queries}, {mass});
  }
  // One list per kv head.
  Scene& Mass(const Needs::Mass& of, const std::vector<std::vector<float>>& lists) {
    const MutableTensorView mass = seen.AddMass(of, static_cast<int64_t>(lists.size()));
    for (size_t i = 0; i < lists.size(); ++i) {
      std::copy(lists[i].begin(), lists[i].end(), mass.Row<float>(static_cast<int64_t>(i)).begin());
    }
    return *this;
  }
  Scene& Units(Needs::Units units, const std::vector<float>& scores) {
    const auto count = static_cast<int64_t>(scores.size());
    std::copy(scores.begin(), scores.end(), seen.AddUnitScores(units, count).Row<float>(0).begin());
    return *this;
  }

  Observation seen;
  std::unique_ptr<Backend> be = MakeBackend("reference", {});

 private:
  static std::vector<int32_t> Count(int64_t rows) {
    std::vector<int32_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  std::vector<int32_t> positions_;
};

}  // namespace coppice
