// What a prune setting lets later prompts reuse, without a prompt.
#pragma once

#include <string_view>

#include "model/prefix.h"
#include "policies/method_info.h"

namespace coppice {

// Returns the latest point of the entries that a prompt of context.tokens tokens can take over under `prune`;
// LayerPoint() if it can take over none. Throws Error for an invalid spec.
LayerPoint ReusedPoint(std::string_view prune, const MethodContext& context);

}  // namespace coppice
