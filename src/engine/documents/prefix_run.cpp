#include "engine/documents/prefix_run.h"

#include <memory>
#include <utility>

namespace coppice {

PrefixRun::PrefixRun(DocumentCache* cache, const std::vector<int32_t>& tokens, const TokenPolicy& policy,
                     const ModelShape& shape, SequenceState& sequence)
    : cache_(cache), tokens_(tokens), sequence_(sequence) {
  if (cache == nullptr) return;
  const PrefixRules rules = RulesOf(policy, shape.layers, static_cast<int64_t>(tokens.size()));
  if (rules.point == LayerPoint()) return;  // the method looks at the whole prompt from the start
  const auto count = static_cast<int64_t>(tokens.size());
  sequence.prefix = cache->Find(tokens, rules);
  const int64_t bytes = PrefixBytes(shape, sequence.layers.front().cache.dtype(), rules.point, count);
  if (cache->Wants(count, bytes, rules.point, sequence.prefix)) {
    sequence.capture = &capture_.emplace(rules.point, shape.layers);
  }
}

void PrefixRun::Keep() {
  if (!capture_) return;
  sequence_.capture = nullptr;
  if (std::shared_ptr<const PrefixState> state = capture_->Take(tokens_)) cache_->Put(std::move(state));
  capture_.reset();
}

}  // namespace coppice
