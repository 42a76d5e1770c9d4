// The account of what pruning did to a run, as `run --json` prints it and the server answers it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "engine/engine.h"

namespace coppice {

// `question`: where the request has its question; the result says it unless it is empty.
nlohmann::ordered_json PruneJson(const Answer& answer, std::span<const PositionSpan> question);

}  // namespace coppice
