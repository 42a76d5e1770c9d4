// PyramidInfer: the context shrinks layer by layer (file head of pyramidinfer.cpp).
#pragma once

#include <cstdint>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct PyramidInferConfig {
  int layers = 32;               // L
  double recent_share = 0.2;     // of the prompt: the last rows, which score the others and always stay
  int recent = 1;                // the number of these rows
  double r = 0.9;                // the ratio that the schedule falls to, (0, 1]; 1 keeps everything
  bool linear = false;           // the schedule: a straight line, or half a cosine
  int sink = 4;                  // positions below this always stay, and count toward the budget
  int interval = 1;              // layers from one pruning to the next
  double distance_weight = 1.2;  // weight of the last scoring query relative to the first
  int min_context = 64;          // a context is not cut to this many tokens or fewer
  int64_t minimum = 1024;        // shorter prompts run densely
};

class PyramidInferPolicy final : public TokenPolicy {
 public:
  explicit PyramidInferPolicy(const PyramidInferConfig& config) : config_(config) {}

  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

  // The share of the context that stays after `layer`.
  double Ratio(int layer) const;

 private:
  bool PrunesAfter(int layer) const;
  Needs::Mass Mass() const {
    return {.queries = config_.recent, .last_weight = static_cast<float>(config_.distance_weight)};
  }
  PyramidInferConfig config_;
};

MethodInfo PyramidInferMethod();

}  // namespace coppice
