// SDTP: saliency-driven dynamic token pruning with trained predictors (file head of sdtp.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/sdtp_predictor.h"

namespace coppice {

struct SdtpConfig {
  // Stages: tokens leave before these layers; ascending, each a layer that the file has a predictor for.
  std::vector<int> layers;
  double r = 0.9;      // r^(s+1) of the prompt stays at stage s, (0, 1]; 1 keeps everything
  int64_t first = 4;   // positions below this always stay
  double local = 0.1;  // share of the prompt, at its end, that always stays
};

class SdtpPolicy final : public TokenPolicy {
 public:
  SdtpPolicy(SdtpConfig config, SdtpFile file);

  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  SdtpConfig config_;
  SdtpFile file_;
};

MethodInfo SdtpMethod();

}  // namespace coppice
