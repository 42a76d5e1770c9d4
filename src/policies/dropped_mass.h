// Measures, in a run of methods that drop rows, which share of the last token's attention fell on rows when
// they were dropped. Rows that only skip a layer's attention or FFN do not count. On real weights the share
// does not tell right answers from wrong ones (docs/quality.md): the engine reports it, but relies on the
// probability of the likeliest tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace coppice {

// One measurement, at a point where rows were dropped: before or after the attention of `layer`.
struct DroppedShare {
  int layer = 0;
  double share = 0;  // of the last token's softmax mass, heads summed, without the prompt's first tokens
};

class DroppedMassMeter {
 public:
  // Measures from the layer before `first` on and appends to `report`, which must outlive the meter.
  DroppedMassMeter(LayerPoint first, std::vector<DroppedShare>* report) : first_(first), report_(report) {}

  // What BeforeLayer and AfterAttention look at.
  Needs NeedsAt(Phase phase, int layer) const;
  // `kept`: the answer to the policy's question of the same name.
  void BeforeLayer(const Observation& seen, const TokenSet& kept);
  // The last layer's scores are not computed: no row of its output but the last is used.
  void AfterAttention(const Observation& seen, const TokenSet& kept);

 private:
  void Measure(const Observation& seen, const TokenSet& kept);

  LayerPoint first_;
  std::vector<DroppedShare>* report_;
};

}  // namespace coppice
