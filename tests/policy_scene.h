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
    std::copy(mass.begin(), mass.end(), seen.AddMass(queries).Row<float>(0).begin());
    return *this;
  }
  Scene& Units(Needs::Units units, const std::vector<float>& scores) {
    std::copy(scores.begin(), scores.end(), seen.AddUnitScores(units).Row<float>(0).begin());
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
