// LazyLLM: dynamic token pruning; dropped tokens can return (file head of lazyllm.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/row_scores.h"
#include "policies/score_sum.h"

namespace coppice {

struct LazyLlmConfig {
  std::vector<int> layers;  // stages: tokens are dropped before these layers; ascending, in [1, L - 1]
  std::vector<double> keep = {0.5};  // share of the remaining prompt tokens that stays, (0, 1]; one per stage
  int sink = 0;                      // positions below this always stay, and count toward keep
  bool revive = true;  // choose again in each decode step; else tokens dropped in prefill are lost
  ReviveMask mask = ReviveMask::kAppend;
  int revive_cap = 0;     // tokens that come back at a stage in one step, at most; 0: all that are chosen
  int revive_every = 1;   // generated tokens from one step in which tokens come back to the next
  RowScores scores = {};  // the paper's: one query, the prompt's last, the mean over heads
  std::vector<PositionSpan> question = {};
  bool paper = false;     // the preset: strict_memory=0
  int strict_memory = 1;  // 1: move late stages, so that a parked token never takes more memory than its keys
  int64_t minimum = 2048;  // shorter prompts run densely
};

class LazyLlmPolicy final : public TokenPolicy {
 public:
  explicit LazyLlmPolicy(LazyLlmConfig config);

  PolicyFacts Facts() const override { return {.parks = config_.revive, .revive_mask = config_.mask}; }
  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

  DecodePoint AttendsAt(int layer) const override;
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be) override;

 private:
  // The stage before `layer` that drops something, or -1.
  int StageBefore(int layer) const;
  int64_t Count(int stage, int64_t prompt_rows) const;
  // Returns true if a stage ranks by the scores of `layer`.
  bool Scores(Phase phase, int layer) const;
  std::span<const float> Mass(const Observation& seen) const;
  // `chosen`, rows of the candidates, without all but the best `cap` of those that are parked. `scores` has a
  // value for each of seen.positions.
  static TokenSet WithinCap(const TokenSet& chosen, const Candidates& candidates, const Observation& seen,
                            std::span<const float> scores, int64_t cap, Backend& be);
  LazyLlmConfig config_;
  ScoreSum sum_;
};

MethodInfo LazyLlmMethod();

}  // namespace coppice
