// A meter beside the methods of a run: what share of the last token's attention fell on tokens at the moment when they
// left. It keeps everything itself. On real weights it does not tell right answers from wrong ones
// (docs/quality.md): the engine shows it, and trusts the probability of the likeliest tokens instead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policies/policy.h"

namespace coppice {

// At the point where tokens left: before the attention of `layer`, or after it.
struct DroppedShare {
  int layer = 0;
  double share = 0;  // of the last token's softmax mass, heads summed, without the prompt's first tokens
};

// Observes layers from the one before `first` on, and writes what it sees to `report`, which must outlive it.
std::unique_ptr<TokenPolicy> MakeDroppedMassMeter(LayerPoint first, std::vector<DroppedShare>* report);

}  // namespace coppice
