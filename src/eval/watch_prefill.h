// Lets a policy that drops nothing watch the layers of a dense prefill.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "policies/policy.h"

namespace coppice {

// Runs `tokens` through the model on a backend of its own, so that the engine's operation times do not count
// this run. As in every prefill, the last layer computes its last row only. Throws Cancelled.
void WatchPrefill(const Engine& engine, std::span<const int32_t> tokens, TokenPolicy& policy,
                  const std::atomic<bool>* cancelled);

}  // namespace coppice
