// Attention scores of rows, summed over layers.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace coppice {

// Keeps the scores of the last `layers` layers. Rows are matched by position, as methods drop rows between
// layers: the sum of a row goes on for as long as the row is there.
class ScoreSum {
 public:
  explicit ScoreSum(int layers = 1) : layers_(layers) {}

  // Adds the scores of one layer for rows at ascending positions. Returns for each of these rows the sum over
  // layers (layer - layers, layer], of those that were added and have the row. Layers ascend; a layer that
  // does not begins a new prompt.
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
