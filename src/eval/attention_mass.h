// How attention mass adds up over a prompt's tokens, measured in a dense run that is not timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace coppice {

// The number of queries at the prompt's end whose attention is measured: FTP's scoring window, for its figure
// 6.
inline constexpr int64_t kMassQueries = 50;

// For each layer but the last (which computes one query only), the MassCurve of the softmax mass from those
// queries, summed over heads. Throws Cancelled.
std::vector<std::vector<double>> AttentionMassOf(const Engine& engine, std::span<const int32_t> tokens,
                                                 const std::atomic<bool>* cancelled);

}  // namespace coppice
