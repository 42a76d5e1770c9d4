// What a prune setting may ask of the model when it is checked or planned without a prompt.
#pragma once

#include "engine/engine.h"
#include "policies/method_info.h"

namespace coppice {

// A context for prompts of `tokens` tokens. It opens no second models: they are taken to fit, because
// requests cannot name one. `engine` must outlive it.
MethodContext PlanContext(const Engine& engine, int64_t tokens);

}  // namespace coppice
