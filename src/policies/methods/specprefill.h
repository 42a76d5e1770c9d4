// SpecPrefill: a second, small model chooses which prompt tokens enter the model (head of specprefill.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct SpecPrefillConfig {
  std::string draft = {};  // file of the second model
  double keep = 0.1;       // share of the chunks that enters, (0, 1]
  int look_ahead = 8;      // K: queries that score
  int pool = 13;           // keys per mean, odd
  int chunk = 32;          // tokens that enter or stay out together
  int64_t minimum = 1024;  // shorter prompts run densely
};

// (1) to (3), for the second model: it reads the prompt's first n - 1 tokens as a prefill, and the last one
// and what it generates as decode steps. Every layer shows its query to Pattern, which changes nothing.
class LookAhead final : public TokenPolicy {
 public:
  LookAhead(int64_t tokens, int pool) : tokens_(tokens), pool_(pool) {}

  bool ChoosesPattern(Phase phase, int /*layer*/) const override { return phase == Phase::kDecode; }
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

  // To be called after each decode step.
  void EndQuery();
  // (3) over the queries that ended, at least one: [tokens].
  std::vector<float> Importance() const;

 private:
  int64_t tokens_;
  int pool_;
  std::vector<float> best_;  // (2) of the current query, so far
  std::vector<float> sum_;   // of (2) over the queries that ended
  int queries_ = 0;
};

// (1)'s sum: row[i] becomes the mean of `pool` values around it, with zeros beyond the ends.
void PoolAverage(std::span<float> row, int pool);

class SpecPrefillPolicy final : public TokenPolicy {
 public:
  // `draft` is called once, in Input.
  SpecPrefillPolicy(SpecPrefillConfig config, DraftScores draft);

  TokenSet Input(int64_t tokens, Backend& be) override;
  LayerPoint FirstChoice() const override { return {}; }  // what enters depends on the whole prompt

 private:
  SpecPrefillConfig config_;
  DraftScores draft_;
};

MethodInfo SpecPrefillMethod();

}  // namespace coppice
