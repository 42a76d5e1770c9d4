// What pruning did in a run, as the JSON object that `run --json` prints and the server returns.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "engine/engine.h"

namespace coppice {

// `question`: Request::question; the result contains it unless it is empty. If a method acted, it contains
// the spans of protected tokens and their number, unless there are none.
nlohmann::ordered_json PruneJson(const Answer& answer, std::span<const PositionSpan> question);

}  // namespace coppice
