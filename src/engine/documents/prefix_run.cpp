#include "engine/documents/prefix_run.h"

#include <memory>
#include <utility>

namespace coppice {

PrefixRun::PrefixRun(DocumentCache* cache, const Request& request, const TokenPolicy& policy,
                     const ModelShape& shape, SequenceState& sequence)
    : cache_(cache), request_(request), sequence_(sequence) {
  if (cache == nullptr) return;
  const auto count = static_cast<int64_t>(request.tokens.size());
  const PrefixRules rules = RulesOf(policy, shape.layers, count);
  if (rules.point == LayerPoint()) return;  // the method looks at the whole prompt from the start
  sequence.prefix = cache->Find(request.tokens, rules, request.documents_owner);
  const int64_t bytes = PrefixBytes(shape, sequence.layers.front().cache.dtype(), rules.point, count);
  if (cache->Wants(count, bytes, rules.point, sequence.prefix)) {
    sequence.capture = &capture_.emplace(rules.point, shape.layers);
  }
}

void PrefixRun::Keep() {
  if (!capture_) return;
  sequence_.capture = nullptr;
  if (std::shared_ptr<const PrefixState> state = capture_->Take(request_.tokens, request_.documents_owner)) {
    cache_->Put(std::move(state));
  }
  capture_.reset();
}

}  // namespace coppice
