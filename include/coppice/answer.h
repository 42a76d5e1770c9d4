// What came of a request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coppice {

struct LlmAnswer {
  std::string text;
  std::string reasoning;        // of a model that thinks; not part of `text`
  std::vector<int32_t> tokens;  // of the answer
  std::string finish_reason;    // "stop", "length", "tool_calls"
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt: taken from earlier prompts
  double ttft_ms = 0;            // from the request's tokens to the first token, with all pruning work
  double tokens_per_second = 0;  // of the answer, after its first token
  std::string prune_spec;        // the method that ran; empty for a dense request
  bool prune_active = false;     // whether it left anything out
  std::string prune_reason;      // why it did not, where it did not
  double flops = 0;              // computed, in prefill and decode
  double flops_dense = 0;        // what a dense run would have computed
  std::string json;              // the reply's last event: every figure (docs/server.md)
};

}  // namespace coppice
