// The account of what pruning did to a run, as `run --json` prints it and the server answers it.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace coppice {

nlohmann::ordered_json PruneJson(const Answer& answer);

}  // namespace coppice
