// MInference: prefill attention on a few columns and diagonals, or on blocks (file head of minference.cpp).
#pragma once

#include <cstdint>

#include "policies/method_info.h"
#include "policies/pattern.h"
#include "policies/policy.h"

namespace coppice {

struct MInferenceConfig {
  bool block_sparse = false;
  int64_t vertical = 1000;  // columns per head, the first kSinkColumns among them
  int64_t slash = 6096;     // diagonals per head, the nearest kLocalDiagonals among them
  int64_t blocks = 100;     // block_sparse: key blocks per query block, the first and its own among them
  int64_t minimum = 8192;   // shorter prompts run densely

  static constexpr int64_t kSinkColumns = 30;
  static constexpr int64_t kLocalDiagonals = 100;
  static constexpr int kBlock = 64;
  static constexpr int64_t kLastQueries = 64;

  // The pattern covers all, or nearly all, of a prompt of up to this many tokens.
  int64_t Reach() const { return block_sparse ? blocks * kBlock : vertical + slash; }
};

class MInferencePolicy final : public TokenPolicy {
 public:
  explicit MInferencePolicy(const MInferenceConfig& config) : config_(config) {}

  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  SparsePattern::Head VerticalSlash(const AttentionInput& head, const BlockGrid& grid, Backend& be) const;
  SparsePattern::Head BlockSparse(const AttentionInput& head, const BlockGrid& grid,
                                  const MeanKeys& mean_keys, Backend& be) const;
  MInferenceConfig config_;
};

MethodInfo MInferenceMethod();

}  // namespace coppice
