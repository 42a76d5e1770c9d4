// How deep each prompt token was computed: layer by layer while the prefill runs, and in total.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace coppice {

// Not thread-safe: called only by the thread that computes the prompt, which also fills the recorder.
class DepthReport {
 public:
  explicit DepthReport(int64_t prompt_tokens) : prompt_tokens_(prompt_tokens) {}

  // The recorder that the report reads; goes to Request::trace.
  TraceRecorder& recorder() { return recorder_; }

  // The layers that ended since the last call: [{"layer", "kept", "ffn"}, ...]. "kept" and "ffn" are lists of
  // run lengths over the prompt, alternately in and out, beginning with in. "kept": tokens with keys in the
  // layer; absent if the same as in the layer below. "ffn": tokens whose FFN ran; absent if the same as
  // "kept".
  nlohmann::ordered_json TakeLayers();

  // Adds to `prune`, as runs [layers, tokens] over the prompt: "depth", the number of layers in which a token
  // has keys after prefill; "ffn_depth", the number in which its FFN ran, if a method skips FFNs;
  // "final_depth", like depth but with tokens revived during decode, if any were. Adds nothing before the
  // prefill ends.
  void AddDepths(nlohmann::ordered_json& prune);

 private:
  const Trace& trace() { return recorder_.trace(); }
  // Maps packed positions (Trace::entered) to prompt tokens; generated tokens are not counted.
  std::vector<int32_t> PromptTokens(std::span<const int32_t> positions);
  nlohmann::ordered_json InAndOut(const std::vector<int32_t>& positions);

  int64_t prompt_tokens_;
  TraceRecorder recorder_;
  size_t told_ = 0;  // layers
};

// The texts of the prompt's tokens in order, with control tokens as they are written. Joined they are the
// prompt as the model reads it; a character that several tokens share goes to the first of them.
nlohmann::ordered_json PromptPieces(const Tokenizer& tokenizer, std::span<const int32_t> tokens);

}  // namespace coppice
