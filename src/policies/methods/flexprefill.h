// FlexPrefill: prefill attention on as many blocks as each head's mass asks for (head of flexprefill.cpp).
#pragma once

#include <cstdint>
#include <span>

#include "policies/method_info.h"
#include "policies/pattern.h"
#include "policies/policy.h"

namespace coppice {

struct FlexPrefillConfig {
  double gamma = 0.9;        // share of the attention mass to cover, (0, 1]; 1 is dense
  double tau = 0.1;          // a head is query-aware if its estimate is closer to the true mass than this
  int64_t min_budget = 512;  // minimum number of tokens in columns, and in diagonals, that a head reads
  int block = 128;
  int64_t minimum = 8192;  // shorter prompts run densely

  int64_t MinBlocks() const { return (min_budget + block - 1) / block; }
};

// sqrt of the Jensen-Shannon divergence of two distributions of the same length, in nats: 0 to
// sqrt(ln 2). NaN where one holds a NaN.
double JensenShannonDistance(std::span<const float> p, std::span<const float> q);

class FlexPrefillPolicy final : public TokenPolicy {
 public:
  explicit FlexPrefillPolicy(const FlexPrefillConfig& config) : config_(config) {}

  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  SparsePattern::Head ChooseHead(const AttentionInput& head, const BlockGrid& grid, const MeanKeys& mean_keys,
                                 Backend& be) const;
  FlexPrefillConfig config_;
};

MethodInfo FlexPrefillMethod();

}  // namespace coppice
