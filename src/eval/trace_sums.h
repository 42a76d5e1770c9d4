// Sums over the trace of a run, small enough for every record of a sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace coppice {

// Shares by place are of tenths of the prompt, from its start to its end.
inline constexpr int kPlaces = 10;
// Cumulative attention mass is recorded for every twentieth of the tokens.
inline constexpr int kMassPoints = 20;

// The share of each tenth of the prompt that has keys after prefill, from `layer` up to the next row's.
struct PlaceRow {
  int64_t layer = 0;
  std::vector<double> shares;  // [kPlaces]
};
// A row for each layer that differs from the layer below. Where each kv head keeps its own tokens, shares are
// scaled to what one head keeps.
std::vector<PlaceRow> PlacesOf(const Trace& trace);
// [layers][kPlaces]; empty if `rows` do not fit that number of layers.
std::vector<std::vector<double>> AllPlaces(const std::vector<PlaceRow>& rows, size_t layers);

// The share of the prompt whose keys were computed after prefill, after the first generated token that went
// through the model, and so on, without the numbers at the end that repeat the one before.
struct TokenUse {
  std::vector<double> all;   // over all layers
  std::vector<double> last;  // in the last layer
};
// `prefill` holds the rows of each layer.
TokenUse UseOf(const Trace& trace, std::span<const int64_t> prefill);

// The share of the total mass on the best 5 %, 10 %, ..., 100 % of the tokens: [kMassPoints], rounded.
std::vector<double> MassCurve(std::span<const float> mass);

}  // namespace coppice
