// coppice: the engine's own method, token pruning in three stages (file head of coppice.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/row_scores.h"
#include "policies/score_sum.h"

namespace coppice {

struct CoppiceStage {
  int layer = 0;    // tokens are dropped before it
  double keep = 1;  // share of the prompt that stays, at most, (0, 1]
  double mass = 1;  // share of the question's attention that stays, (0, 1]; 1: `keep` alone decides
  RowScores scores;

  bool Drops() const { return keep < 1 || mass < 1; }
};

struct CoppiceConfig {
  std::vector<CoppiceStage> stages;  // layers ascend
  int sink = 4;                      // positions below this stay
  int last = 64;        // number of last tokens that stay, of the prompt and of the question each
  int64_t floor = 256;  // a stage keeps at least this many tokens
  bool revive = true;
  // Parked tokens come back if they receive more than this share of a step's attention.
  double revive_mass = 0.3;
  int revive_cap = 32;  // at most this many per stage and step
  ReviveMask mask = ReviveMask::kAppend;
  std::vector<PositionSpan> question = {};
};

class CoppicePolicy final : public TokenPolicy {
 public:
  explicit CoppicePolicy(CoppiceConfig config);

  PolicyFacts Facts() const override { return {.parks = config_.revive, .revive_mask = config_.mask}; }
  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

  DecodePoint AttendsAt(int layer) const override;
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be) override;

 private:
  // The stage before `layer` if it drops tokens, else null.
  const CoppiceStage* StageBefore(int layer) const;
  // `tail`: the position from which on the prompt's last tokens stay.
  bool AlwaysStays(int64_t position, int64_t tail) const;
  CoppiceConfig config_;
  std::vector<ScoreSum> sums_;  // [stages]
};

MethodInfo CoppiceMethod();

}  // namespace coppice
