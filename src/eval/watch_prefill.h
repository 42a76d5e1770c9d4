// Lets a policy that drops nothing watch the layers of a dense prefill.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "policies/policy.h"

namespace coppice {

// Which rows the last layer computes: as in every prefill, the last one only, or all of them.
enum class LastLayer { kLastRow, kAllRows };

// Runs `tokens` through the model on a backend of its own, so that the engine's operation times do not count
// this run. Throws Cancelled.
void WatchPrefill(const Engine& engine, std::span<const int32_t> tokens, TokenPolicy& policy,
                  const std::atomic<bool>* cancelled, LastLayer last = LastLayer::kLastRow);

}  // namespace coppice
