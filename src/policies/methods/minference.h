// MInference: prefill attention on a few columns and diagonals, on blocks, or on the first and the nearest
// keys (file head of minference.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "policies/method_info.h"
#include "policies/methods/head_patterns.h"
#include "policies/policy.h"

namespace coppice {

struct MInferenceConfig {
  PatternKind pattern = PatternKind::kVerticalSlash;  // of all heads, if there is no file
  int64_t vertical = 1000;                            // columns per head, the first kSinkColumns among them
  int64_t slash = 6096;    // diagonals per head, the nearest kLocalDiagonals among them
  int64_t blocks = 100;    // block_sparse: key blocks per query block, the first and its own among them
  int64_t first = 1024;    // a_shape: keys at the prompt's start
  int64_t nearest = 4096;  // a_shape: keys up to the query's own
  std::string file = {};
  std::shared_ptr<const HeadPatterns> heads = nullptr;  // of `file`
  int64_t minimum = 8192;                               // shorter prompts run densely

  HeadPattern Of(int layer, int head) const;
  // The patterns cover all, or nearly all, of a prompt of up to this many tokens.
  int64_t Reach() const { return heads ? heads->LeastReach() : Of(0, 0).Reach(); }
};

class MInferencePolicy final : public TokenPolicy {
 public:
  explicit MInferencePolicy(MInferenceConfig config) : config_(std::move(config)) {}

  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  MInferenceConfig config_;
};

MethodInfo MInferenceMethod();

}  // namespace coppice
