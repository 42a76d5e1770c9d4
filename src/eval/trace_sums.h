// Summaries of a run's trace, small enough to be stored with every sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace coppice {

// Number of equal parts of the prompt for which shares are recorded, from its start to its end.
inline constexpr int kPlaces = 10;
// Number of points of the cumulative curve of attention mass: one per twentieth of the tokens.
inline constexpr int kMassPoints = 20;

// For the layers from `layer` up to that of the next row: which share of each part of the prompt has keys
// after prefill.
struct PlaceRow {
  int64_t layer = 0;
  std::vector<double> shares;  // [kPlaces]
};
// Returns a row for each layer whose shares differ from those of the layer below. If each kv head keeps its
// own tokens, shares are scaled to the number that one head keeps.
std::vector<PlaceRow> PlacesOf(const Trace& trace);
// [layers][kPlaces]; empty if `rows` do not fit that number of layers.
std::vector<std::vector<double>> AllPlaces(const std::vector<PlaceRow>& rows, size_t layers);

// The same for FFNs: which share of each part of the prompt runs the FFN of a layer. Without the last layer,
// which runs it for the prompt's last token only.
std::vector<PlaceRow> FfnPlacesOf(const Trace& trace);

// For the layers from `layer` up to that of the next row: TokenUse by step.
struct LayerUse {
  int64_t layer = 0;
  std::vector<double> shares;
};

// The share of the prompt's tokens whose keys have been computed: first after prefill, then after each decode
// step. Revival raises it. Trailing numbers that equal the one before them are left out.
struct TokenUse {
  std::vector<double> all;   // over all layers
  std::vector<double> last;  // in the last layer
  // By layer: a row for each layer whose shares differ from those of the layer below.
  std::vector<LayerUse> layers = {};
};
// `prefill`: the number of rows of each layer after prefill.
TokenUse UseOf(const Trace& trace, std::span<const int64_t> prefill);
// [layers], a list for each; empty if `rows` do not fit that number of layers. And back.
std::vector<std::vector<double>> AllUses(const std::vector<LayerUse>& rows, size_t layers);
std::vector<LayerUse> UseRows(const std::vector<std::vector<double>>& by_layer);

// The share of the total mass that the tokens with the most mass hold, for the top 5 %, 10 %, ..., 100 % of
// them: [kMassPoints], rounded.
std::vector<double> MassCurve(std::span<const float> mass);

}  // namespace coppice
