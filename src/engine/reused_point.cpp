#include "engine/reused_point.h"

#include "policies/registry.h"

namespace coppice {

LayerPoint ReusedPoint(std::string_view prune, const MethodContext& context) {
  const PruneChoice choice = MakePolicy(prune, context, {});
  return RulesOf(*choice.policy, context.shape.layer_count(), context.tokens).point;
}

}  // namespace coppice
