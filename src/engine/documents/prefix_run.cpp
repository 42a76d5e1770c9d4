#include "engine/documents/prefix_run.h"

#include <memory>
#include <utility>

namespace coppice {

PrefixRun::PrefixRun(DocumentCache* cache, const Request& request, const ModelShape& shape, const Pass& pass)
    : cache_(cache), request_(request), sequence_(pass.sequence) {
  if (cache == nullptr) return;
  const auto count = static_cast<int64_t>(request.tokens.size());
  const PrefixRules rules = RulesOf(pass.policy, shape.layers, count);
  if (rules.point == LayerPoint()) return;  // the method chooses before layer 0: nothing can be reused
  sequence_.prefix =
      cache->Find(request.tokens, rules, request.documents_owner, pass.control, request.documents_hint);
  const int64_t bytes = PrefixBytes(shape, sequence_.layers.front().cache.dtype(), rules.point, count);
  if (cache->Wants(count, bytes, rules.point, sequence_.prefix, request.documents_hint)) {
    sequence_.capture = &capture_.emplace(rules.point, shape.layers);
  }
}

void PrefixRun::Keep() {
  if (!capture_) return;
  sequence_.capture = nullptr;
  if (std::shared_ptr<const PrefixState> state = capture_->Take(request_.tokens, request_.documents_owner)) {
    cache_->Put(std::move(state), request_.documents_hint);
  }
  capture_.reset();
}

}  // namespace coppice
