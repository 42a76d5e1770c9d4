// FTP: FFN token pruning (file head of ftp.cpp).
#pragma once

#include <cstdint>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct FtpConfig {
  double eta = 0.93;     // share of the middle's attention mass to keep, (0, 1]; 1 keeps everything
  int dense = 10;        // F: layers below this one run the FFN on every row
  int first = 100;       // P: positions below this always run
  int num_queries = 50;  // Nq: the last rows, which score the others and always run
  bool random = false;   // the control: as many of the middle's rows, chosen by lot
  uint64_t seed = 0;
};

class FtpPolicy final : public TokenPolicy {
 public:
  explicit FtpPolicy(const FtpConfig& config) : config_(config) {}

  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet RunFfn(const Observation& seen, Backend& be) override;

 private:
  Needs::Mass Mass() const { return {.queries = config_.num_queries}; }
  bool IsDense(int layer) const { return layer < config_.dense || config_.eta >= 1; }
  FtpConfig config_;
};

MethodInfo FtpMethod();

}  // namespace coppice
