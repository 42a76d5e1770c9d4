// The cost of a run, without running it. The policy's answers act on the real stream and caches, and the
// ledger counts them with its closed forms. The layers compute nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/ledger.h"
#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct DryRun {
  Ledger ledger;  // of the prefill; bytes as they are after it
  std::string spec;
  bool active = false;
  std::string reason;  // why a method does not act, or empty
};

// `prompt`: any token ids. `prune`: a --prune spec. A method that chooses by scores gets random scores, the
// same in every run. Attention mass is exponentially distributed: 60 % of the tokens hold 90 % of it (in real
// prompts 60 % hold 95 %: FTP, figure 6). Methods of sparse attention get normally distributed queries and
// keys. SDTP without a file plans with random predictors at the trainer's default stages. Of the second model
// of speculative prefill only the sizes are read, and its tokens are not compared. For a method with a cold
// tier, PlanRun also plans the first decode step, to which `cold_bytes`, `revived` and `swaps` then refer.
// Throws Error for a spec that does not fit the model.
DryRun PlanRun(const ModelConfig& config, std::span<const int32_t> prompt, std::string_view prune,
               Backend& be);

// What a planned prefill takes over from an earlier prompt: the keys of its first `rows` tokens in the layers
// below `point`, and their hidden states there.
struct PlannedPrefix {
  LayerPoint point;
  int64_t rows = 0;
};

// The ledger of one prefill of a prompt of `tokens` tokens, counted as PlanRun counts it. `policy` must be
// new, and RulesOf(policy) must allow `prefix`. Attention whose pattern the policy chooses counts as free,
// because planning a pattern takes seconds: the FLOPs are then a lower bound. `be` must compute in this
// machine's memory.
Ledger PlanPrefill(const ModelConfig& config, int64_t tokens, TokenPolicy& policy,
                   const PlannedPrefix& prefix, Backend& be);

// What a second model would say of a prompt, for plans: a random score of each token; each piece with a text
// as a word with a random probability.
std::vector<float> PlannedScores(int64_t tokens);
std::vector<ReadWord> PlannedWords(std::span<const std::string> pieces);

}  // namespace coppice
