// What later requests reuse of the document cache, as KV events and gauges tell it to routers.
#include <algorithm>

#include "engine/reused_point.h"
#include "server/kv_blocks.h"
#include "server/plan_context.h"
#include "server/server.h"

namespace coppice {

// The latest point of the entries that a prompt of `tokens` tokens takes over under the default method.
LayerPoint Server::PointOf(int64_t tokens) const {
  const ResolvedPrune resolved = engine_->ResolvePrune(options_.defaults.prune, tokens, PromptStates::kKept);
  return ReusedPoint(resolved.spec, PlanContext(*engine_, tokens));
}

// Returns true if every request that begins with the document, and chooses nothing but its text, takes the
// document over. A method may act on long prompts only, so the shortest and the longest such request count.
// Documents of other API keys and salted ones must not be announced: they do not serve the requests that a
// router sees, and an event shows the tokens of a document. The folder may still hold documents of several
// keys when the server has one key or none.
bool Server::ServesLater(const HeldDocument& document) const {
  if (document.owner != PrefixOwner() || document.point == LayerPoint()) return false;
  const LayerPoint end{engine_->model().config().shape.layer_count(), false};
  const bool answers_densely = options_.defaults.complete && document.complete && document.point == end;
  return answers_densely || document.point <= std::min(PointOf(std::ssize(document.tokens)), longest_point_);
}

int64_t Server::CacheBlocks() const {
  DocumentCache* documents = engine_->documents();
  if (documents == nullptr || longest_point_ == LayerPoint()) return 0;
  const int64_t bytes = PrefixBytes(engine_->model().config().shape, engine_->backend().cache_dtype(),
                                    longest_point_, kBlockTokens);
  return documents->memory_limit() / bytes;
}

}  // namespace coppice
