// SDTP: saliency-driven dynamic token pruning with trained predictors (file head of sdtp.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/methods/sdtp_predictor.h"
#include "policies/policy.h"

namespace coppice {

struct SdtpConfig {
  // Stages: tokens are dropped before these layers. Ascending; the file has a predictor for each.
  std::vector<int> layers;
  double r = SdtpPaperSetting().r;  // as there
  int64_t first = SdtpPaperSetting().first;
  double local = SdtpPaperSetting().local;
};

// (3), (4): how many of a stage's rows stay: `keep` in all, the first `first` and the last `last` whatever
// their scores. Training uses the same rule, so that it masks the rows that a run removes.
struct SdtpStays {
  int64_t keep = 0;
  int64_t first = 0;
  int64_t last = 0;  // at least 1

  bool All(int64_t rows) const { return std::max(keep, first + last) >= rows; }
};
// Reads the positions of `seen`, and how long the prompt is.
SdtpStays StaysAt(const SdtpConfig& config, int stage, const Observation& seen);

class SdtpPolicy final : public TokenPolicy {
 public:
  SdtpPolicy(SdtpConfig config, std::shared_ptr<const SdtpFile> file);

  LayerPoint FirstChoice() const override;
  bool ReadsHidden(int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  SdtpConfig config_;
  std::shared_ptr<const SdtpFile> file_;
};

// The value of the key `file` in a dry run without one. A file of this name is ./random there.
inline constexpr const char* kRandomPredictors = "random";

MethodInfo SdtpMethod();

}  // namespace coppice
