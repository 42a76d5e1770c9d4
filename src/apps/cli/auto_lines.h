// What `--prune auto` will do to the prompts of a server.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"

namespace coppice::cli {

// Lines, each with its end: one for each range of prompt lengths with a setting, and one for prompts of other
// lengths; or the reason why every prompt is dense. Empty if `prune` is not auto. Throws Error if the
// calibration beside the model cannot be used.
std::string AutoLines(Engine& engine, std::string_view prune, PromptStates states);

}  // namespace coppice::cli
