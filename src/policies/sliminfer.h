// SlimInfer: dynamic token pruning of hidden states by blocks (file head of sliminfer.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace coppice {

struct SlimInferConfig {
  std::vector<int> layers;    // p_s: from this layer on only keep[s] tokens; ascending, in [1, L - 1]
  std::vector<int64_t> keep;  // k_s: tokens, block 0 and the tail block inside the count
  int block = 64;             // B: tokens per block
  int unit = 8;               // u: tokens per scoring unit; divides block
  int window = 4;             // w: last queries, averaged
};

class SlimInferPolicy final : public TokenPolicy {
 public:
  explicit SlimInferPolicy(SlimInferConfig config);

  Needs NeedsAt(int layer) const override;
  TokenSet AfterAttention(const Observation& seen, Backend& be) override;

 private:
  // The stage that decides after the attention of `layer`, or -1.
  int StageAfter(int layer) const;
  SlimInferConfig config_;
};

}  // namespace coppice
