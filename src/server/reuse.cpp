// What later requests reuse of the document cache, as KV events and gauges tell it to routers.
#include "model/prefix.h"
#include "policies/registry.h"
#include "server/kv_blocks.h"
#include "server/server.h"

namespace coppice {

// The latest point of the entries that a prompt of so many tokens can take over under the default method.
LayerPoint Server::ReusedPoint(int64_t tokens) const {
  const ModelShape& shape = engine_->model().config().shape;
  const ResolvedPrune resolved = engine_->ResolvePrune(options_.defaults.prune, tokens, PromptStates::kKept);
  const PruneChoice choice = MakePolicy(resolved.spec, {.shape = shape, .tokens = tokens}, {});
  return RulesOf(*choice.policy, shape.layers, tokens).point;
}

// Whether a request that begins with the document, and chooses nothing but its text, takes it over. A salted
// document serves only requests with the same salt, which no router sees.
bool Server::ServesLater(const HeldDocument& document) const {
  if (document.owner.salt != 0 || document.point == LayerPoint()) return false;
  const LayerPoint end{engine_->model().config().shape.layers, false};
  const bool answers_densely = options_.defaults.complete && document.complete && document.point == end;
  return answers_densely || document.point <= ReusedPoint(std::ssize(document.tokens));
}

int64_t Server::CacheBlocks() const {
  DocumentCache* documents = engine_->documents();
  const LayerPoint point = ReusedPoint(engine_->context());
  if (documents == nullptr || point == LayerPoint()) return 0;
  const int64_t bytes =
      PrefixBytes(engine_->model().config().shape, engine_->backend().cache_dtype(), point, kBlockTokens);
  return documents->memory_limit() / bytes;
}

}  // namespace coppice
