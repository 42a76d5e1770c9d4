// How attention adds up over a prompt's tokens, in a dense run of its own that is not timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace coppice {

// Queries at the prompt's end whose attention is looked at: FTP's scoring window, whose figure 6 this serves.
inline constexpr int64_t kMassQueries = 50;

// For each layer but the last (where only one query is left) the MassCurve of the softmax mass that those queries give,
// over all heads. Throws Cancelled.
std::vector<std::vector<double>> AttentionMassOf(const Engine& engine, std::span<const int32_t> tokens,
                                                 const std::atomic<bool>* cancelled);

}  // namespace coppice
