// The cost of a run, without running it. The policy's answers act on the real stream and caches, and the
// ledger counts them with its closed forms. The layers compute nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/ledger.h"

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

}  // namespace coppice
