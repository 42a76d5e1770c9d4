#include "engine/documents/prefix_run.h"

#include <memory>
#include <utility>

namespace coppice {

namespace {

std::span<const std::shared_ptr<const PrefixState::Checkpoint>> CheckpointsUpTo(const PrefixUse& use) {
  const auto& all = use.state->checkpoints;
  const auto end = std::ranges::find_if(all, [&](const auto& c) { return c->rows > use.rows; });
  return {all.begin(), end};
}

}  // namespace

PrefixRun::PrefixRun(DocumentCache* cache, const Request& request, const ModelShape& shape, const Pass& pass,
                     std::span<const int64_t> turns)
    : cache_(cache), request_(request), sequence_(pass.sequence) {
  if (cache == nullptr) return;
  const auto count = static_cast<int64_t>(request.tokens.size());
  const PrefixRules rules = RulesOf(pass.policy, shape.layer_count(), count);
  // A method that chooses before layer 0 reuses nothing but what is protected.
  if (rules.point == LayerPoint() && rules.dense == 0) return;
  sequence_.prefix =
      cache->Find(request.tokens, rules, request.documents_owner, pass.control, request.documents_hint);
  const PrefixUse& found = sequence_.prefix;
  // Rows from a later point have no hidden states at the method's own.
  const bool is_later = found.state && found.state->point > rules.point;
  const LayerPoint end{shape.layer_count(), false};
  const bool leaves_dense =
      rules.point < end && (is_later || rules.dense * DepthOf(end) > count * DepthOf(rules.point));
  const LayerPoint point = leaves_dense ? end : rules.point;
  const int64_t rows = leaves_dense ? rules.dense : count;
  std::vector<int64_t> checkpoints;
  if (shape.HasStates()) {
    checkpoints = CheckpointsOf(rows, found.rows, leaves_dense ? 0 : rules.tail, turns);
  }
  const int64_t bytes = PrefixBytes(shape, sequence_.cache_type(), point, rows, std::ssize(checkpoints));
  if (rows > 0 && cache->Wants(rows, bytes, point, found, request.documents_hint)) {
    sequence_.capture = &capture_.emplace(point, shape.layer_count(),
                                          leaves_dense ? rows : PrefixCapture::kAllRows, checkpoints);
    if (found.state && found.state->point == point) capture_->Inherit(CheckpointsUpTo(found));
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
