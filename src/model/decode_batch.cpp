#include "model/decode_batch.h"

#include <utility>

#include "base/check.h"

namespace coppice {

bool IsPlainDecode(const Pass& pass) {
  if (pass.sequence.trace != nullptr || pass.sequence.cold) return false;
  for (int l = 0; l < static_cast<int>(pass.sequence.layers.size()); ++l) {
    const TokenPolicy& policy = pass.policy;
    if (policy.AttendsAt(l) != DecodePoint::kNone || policy.RetainsAt(Phase::kDecode, l) ||
        policy.ChoosesPattern(Phase::kDecode, l) || !policy.NeedsAt(Phase::kDecode, l).empty())
      return false;
  }
  return true;
}

DecodeBatch::DecodeBatch(std::span<DecodeStep* const> steps, Tensor hidden, int layers)
    : pass_(steps.front()->pass), hidden_(std::move(hidden)) {
  int64_t row = 0;
  for (const DecodeStep* step : steps) {
    SequenceState& sequence = step->pass.sequence;
    COPPICE_CHECK(!step->tokens.empty() && &step->pass.backend == &pass_.backend);
    Part part{sequence, row, {}};
    for (size_t i = 0; i < step->tokens.size(); ++i) {
      part.positions.push_back(static_cast<int32_t>(sequence.depth.size()));
      sequence.depth.push_back(layers);
      sequence.tokens.push_back(step->tokens[i]);
      tokens_.push_back(step->tokens[i]);
    }
    COPPICE_CHECK(std::ssize(sequence.depth) <= sequence.capacity);
    sequence.ReachRope(std::ssize(sequence.depth));
    row += part.rows();
    parts_.push_back(std::move(part));
  }
  COPPICE_CHECK(row == hidden_.rows() && row <= workspace().tile_rows);
}

}  // namespace coppice
