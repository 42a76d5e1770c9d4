// The list of all pruning methods, and policies made from specs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_shape.h"
#include "policies/compose.h"
#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/spec.h"

namespace coppice {

// In the order in which `coppice methods` lists them.
std::span<const MethodInfo> Methods();
// Throws PruneError, with the name that may be meant.
const MethodInfo& FindMethod(std::string_view name);

// A whole --prune spec for one prompt.
struct PruneChoice {
  std::unique_ptr<TokenPolicy> policy;  // never null; the dense policy if nothing is pruned
  std::string spec;                     // canonical: every key written out; "none" for dense
  bool active = false;                  // at least one method acts
  std::string reason;                   // which methods do not act, and why; empty if all act
};

// Throws PruneError for an unknown method, key or value, a layer out of range, or methods that cannot be
// combined.
PruneChoice MakePolicy(std::string_view spec, const MethodContext& context, const Protection& protection);

}  // namespace coppice
