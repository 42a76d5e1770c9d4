// What a trace says of a run, as sums that are small enough to stand in every record.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace coppice {

// The prompt is looked at in tenths, from its start to its end.
inline constexpr int kPlaces = 10;
// Cumulative attention mass is told for every twentieth of the tokens.
inline constexpr int kMassPoints = 20;

// [[layer, share of each tenth of the prompt that has keys there after prefill], ...]; a layer that is as the one before
// is left out. Where every kv head holds its own tokens the shares are scaled to what one head holds.
nlohmann::ordered_json PlacesJson(const Trace& trace);
// Of [layers][kPlaces] what PlacesJson told; empty where `places` does not fit `layers`.
std::vector<std::vector<double>> AllPlaces(const nlohmann::ordered_json& places, size_t layers);

// {"all": [...], "last": [...]}: of the prompt's token-layers, and of its tokens in the last layer, the share whose keys
// were computed after prefill, after the first generated token that went through the model, and so on; what follows
// the last number does not change any more. `prefill` holds the rows of each layer.
nlohmann::ordered_json UseJson(const Trace& trace, std::span<const int64_t> prefill);

// Of what `mass` adds up to, the share that the best 5 %, 10 %, ..., 100 % of its tokens hold: [kMassPoints], rounded.
std::vector<double> MassCurve(std::span<const float> mass);

}  // namespace coppice
