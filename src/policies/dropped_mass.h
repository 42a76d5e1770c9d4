// Measures, in a run of other methods, which share of the last token's attention fell on tokens when they
// were dropped. Drops nothing itself. On real weights the share does not tell right answers from wrong ones
// (docs/quality.md): the engine reports it, but relies on the probability of the likeliest tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policies/policy.h"

namespace coppice {

// One measurement, at a point where tokens were dropped: before or after the attention of `layer`.
struct DroppedShare {
  int layer = 0;
  double share = 0;  // of the last token's softmax mass, heads summed, without the prompt's first tokens
};

// Observes from the layer before `first` on and appends to `report`, which must outlive the policy.
std::unique_ptr<TokenPolicy> MakeDroppedMassMeter(LayerPoint first, std::vector<DroppedShare>* report);

}  // namespace coppice
