// Quest: each generated token reads only the pages of keys that may matter to it (file head of quest.cpp).
#pragma once

#include <cstdint>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct QuestConfig {
  int64_t budget = 1024;   // keys that a query head reads, in whole pages
  int page = 16;           // positions per page
  int dense = 2;           // layers below this one read every key
  int64_t minimum = 1024;  // shorter prompts run densely
};

class QuestPolicy final : public TokenPolicy {
 public:
  explicit QuestPolicy(const QuestConfig& config) : config_(config) {}

  PolicyFacts Facts() const override { return {.page_size = config_.page}; }
  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  int64_t KeptPages() const;
  QuestConfig config_;
};

MethodInfo QuestMethod();

}  // namespace coppice
