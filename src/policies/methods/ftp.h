// FTP: FFN token pruning (file head of ftp.cpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/row_scores.h"
#include "policies/score_sum.h"

namespace coppice {

struct FtpConfig {
  double eta = 0.93;     // share of the middle's attention mass to keep, (0, 1]; 1 keeps everything
  int dense = 10;        // F: layers below this one run the FFN on every row
  int first = 100;       // P: positions below this always run
  int num_queries = 50;  // Nq: the last rows, which always run
  RowScores scores = {.queries = 0};  // 0 queries: Nq. The paper's: the last Nq rows, the sum over heads
  bool fill_mean = false;  // rows that skip the FFN get the mean output of the middle's rows that ran
  bool random = false;     // the control: the same number of the middle's rows, chosen at random
  uint64_t seed = 0;
  int64_t minimum = 1024;  // shorter prompts run densely
  std::vector<PositionSpan> question = {};
};

class FtpPolicy final : public TokenPolicy {
 public:
  explicit FtpPolicy(FtpConfig config) : config_(std::move(config)), sum_(config_.scores.sum) {}

  PolicyFacts Facts() const override {
    return {
        .fills = config_.fill_mean,
        .one_process = config_.fill_mean ? "ftp:fill=mean sums FFN outputs in the order of all rows" : ""};
  }
  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet RunFfn(const Observation& seen, Backend& be) override;
  TokenSet FillFrom(const Observation& seen, const TokenSet& ran) override;

 private:
  Needs::Mass Mass() const {
    Needs::Mass mass = config_.scores.Need(Phase::kPrefill, config_.question);
    if (mass.queries == 0) mass.queries = config_.num_queries;
    return mass;
  }
  // The middle's rows [first, second), among which (2) chooses.
  std::pair<int64_t, int64_t> Middle(const Observation& seen) const;
  bool IsDense(int layer) const { return layer < config_.dense || config_.eta >= 1; }
  // Returns true if a layer that skips FFNs ranks by the scores of `layer`: this layer or one of the next sum
  // - 1.
  bool Scores(int layer) const { return !IsDense(layer + config_.scores.sum - 1); }
  FtpConfig config_;
  ScoreSum sum_;
};

MethodInfo FtpMethod();

}  // namespace coppice
