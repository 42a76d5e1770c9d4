// What a run would cost, without running it: the policy's answers act on the real stream and caches, and the
// ledger counts them by its closed forms; nothing else is computed.
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
  std::string reason;  // why a method stood aside, or empty
};

// `prompt` are ids of any kind, `prune` a --prune SPEC. Where a method's choice follows from scores it gets
// random ones, the same in every run: shares of attention as exponential variates, of which 60 % hold 90 %
// (of real prompts 60 % hold 95 %: FTP, figure 6); queries and keys, for methods of sparse attention, normal
// variates. For a method with a cold tier the first decode step is planned, too: `cold_bytes`, `revived` and
// `swaps` are those of that step. Throws Error for a spec that does not fit.
DryRun PlanRun(const ModelConfig& config, std::span<const int32_t> prompt, std::string_view prune,
               Backend& be);

}  // namespace coppice
