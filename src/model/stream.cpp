#include "model/stream.h"

#include <utility>

namespace coppice {

Stream::Stream(Phase phase, int layers, int64_t prompt_tokens, Tensor hidden, std::vector<int32_t> positions,
               std::vector<int32_t>& depth)
    : hidden_(std::move(hidden)), positions_(std::move(positions)), depth_(depth) {
  COPPICE_CHECK(hidden_.rows() == rows());
  seen_.phase = phase;
  seen_.layers = layers;
  seen_.prompt_tokens = prompt_tokens;
  seen_.positions = positions_;
}

Observation& Stream::Enter(int layer) {
  seen_.layer = layer;
  return seen_;
}

void Stream::Keep(const TokenSet& kept, int layers_computed, Backend& be) {
  COPPICE_CHECK(kept.universe() == rows() && kept.size() > 0);
  if (kept.IsAll()) return;
  size_t next = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    if (next < kept.rows().size() && kept.rows()[next] == row) {
      ++next;
    } else {
      depth_[static_cast<size_t>(positions_[static_cast<size_t>(row)])] = layers_computed;
    }
  }
  Compact(kept, be);
}

void Stream::KeepLastOnly(Backend& be) { Compact(TokenSet::None(rows()).UnionLast(1), be); }

void Stream::Compact(const TokenSet& kept, Backend& be) {
  if (kept.IsAll()) return;
  const MutableTensorView all = hidden();
  be.GatherRows(all, kept.rows(), all.Rows(0, kept.size()));
  for (size_t i = 0; i < kept.rows().size(); ++i)
    positions_[i] = positions_[static_cast<size_t>(kept.rows()[i])];
  positions_.resize(kept.rows().size());
  seen_.KeepRows(kept, be);
  seen_.positions = positions_;
}

}  // namespace coppice
