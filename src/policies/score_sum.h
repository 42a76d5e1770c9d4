// Attention scores of rows, summed over layers.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace coppice {

// Keeps the scores of the last `layers` layers. Matches rows by position, because methods drop rows between
// layers: the sum of a row continues until the row is dropped.
class ScoreSum {
 public:
  explicit ScoreSum(int layers = 1) : layers_(layers) {}

  // Adds the scores of one layer for rows at ascending positions. Returns for each of these rows the sum over
  // the layers in (layer - layers, layer] that were added and contain the row. Layers ascend; a lower layer
  // begins a new prompt.
  std::vector<float> Add(int layer, std::span<const float> scores, std::span<const int32_t> positions);

 private:
  struct LayerScores {
    int layer;
    std::vector<float> scores;  // [positions_.size()]
  };

  int layers_;
  std::vector<int32_t> positions_;  // of the rows of the layer that was added last
  std::deque<LayerScores> window_;
};

}  // namespace coppice
