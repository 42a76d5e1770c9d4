// SPTS: self-predictive token skipping (file head of spts.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policies/method_info.h"
#include "policies/methods/spts_proxy.h"
#include "policies/policy.h"

namespace coppice {

struct SptsConfig {
  int begin = 0;              // layers below this one are dense
  std::vector<int> ends;      // the last layer of each stage, ascending, in [begin, L - 1]
  std::vector<int64_t> keep;  // M by stage: rows that attend, and rows that run the FFN
  std::vector<int64_t> drop;  // K by stage: candidates that leave the stream behind its last layer
  int64_t tokens = 0;         // that enter the model: skipping begins where they exceed M
  int64_t minimum = 1024;     // shorter prompts run densely
};

class SptsPolicy final : public TokenPolicy {
 public:
  // Without `proxies`, C of (4) is 1: attention alone chooses the rows that run the FFN.
  SptsPolicy(SptsConfig config, std::shared_ptr<const SptsFile> proxies);

  PolicyFacts Facts() const override {
    return {.one_process = "spts ranks all rows by the hidden states that enter their FFNs"};
  }
  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;
  bool ProbesAttention(int layer) const override { return Skips(layer); }
  TokenSet RunAttention(const Observation& seen, Backend& be) override;
  TokenSet RunFfn(const Observation& seen, Backend& be) override;

  // The largest number of candidates that a stage can have, if no other method drops rows.
  int64_t Candidates(size_t stage) const { return candidates_[stage]; }

 private:
  // The stage of a layer >= begin; behind the last stage, their number.
  size_t StageOfLayer(int layer) const;
  int64_t Budget(size_t stage) const;
  bool Skips(int layer) const;
  // Whether candidates leave the stream before `layer`.
  bool DropsBefore(int layer) const;
  // The number of the `rows` candidates of `stage` that stay behind it.
  int64_t Stays(size_t stage, int64_t rows) const;

  SptsConfig config_;
  std::shared_ptr<const SptsFile> proxies_;
  std::vector<int64_t> candidates_;  // by stage
};

MethodInfo SptsMethod();

}  // namespace coppice
