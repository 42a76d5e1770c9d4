// StreamingLLM: the cache keeps the first and the last tokens (file head of streamingllm.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct StreamingLlmConfig {
  int64_t sink = 4;        // first rows
  int64_t recent = 1020;   // last rows
  int64_t minimum = 1024;  // shorter prompts run densely
};

class StreamingLlmPolicy final : public TokenPolicy {
 public:
  explicit StreamingLlmPolicy(const StreamingLlmConfig& config) : config_(config) {}

  // Slots have no gaps: what an input selection lets in moves together. A whole prompt keeps its positions.
  PolicyFacts Facts() const override { return {.compact_positions = true}; }
  bool RetainsAt(Phase phase, int layer) const override;
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override;

 private:
  StreamingLlmConfig config_;
  std::vector<std::vector<int32_t>> pinned_;  // [layers] other cache rows to keep, ascending
};

MethodInfo StreamingLlmMethod();

}  // namespace coppice
