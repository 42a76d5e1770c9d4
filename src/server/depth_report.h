// How deep each token of a prompt was computed: layer by layer while its prefill runs, and in sum.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace coppice {

// Every call comes from the thread that computes the prompt, which is the one that fills the recorder.
class DepthReport {
 public:
  explicit DepthReport(int64_t prompt_tokens) : prompt_tokens_(prompt_tokens) {}

  // What fills it; for Request::trace.
  TraceRecorder& recorder() { return recorder_; }

  // The layers that have ended since the last call, in order: [{"layer", "kept", "ffn"}, ...]. Each list holds the
  // lengths of runs of prompt tokens, alternately in and out, first in. "kept": with keys in the layer; left out
  // where as in the layer before. "ffn": whose FFN ran; left out where those kept.
  nlohmann::ordered_json TakeLayers();

  // Adds to `prune`, as runs [layers, tokens] over the prompt: "depth", in how many layers each token has keys after
  // prefill; "ffn_depth", in how many its FFN ran, where a method skips FFNs; "final_depth", as depth with what came
  // back while the answer was generated, where something did. Nothing before the prefill's end.
  void AddDepths(nlohmann::ordered_json& prune);

 private:
  const Trace& trace() { return recorder_.trace(); }
  // Positions may be packed (Trace::entered); those of generated tokens are not counted.
  std::vector<int32_t> PromptTokens(std::span<const int32_t> positions);
  nlohmann::ordered_json InAndOut(const std::vector<int32_t>& positions);

  int64_t prompt_tokens_;
  TraceRecorder recorder_;
  size_t told_ = 0;  // layers
};

// The texts of a prompt's tokens, in order, control tokens as they are written. Together they are the prompt as
// the model reads it; a character that several tokens share stands with the first.
nlohmann::ordered_json PromptPieces(const Tokenizer& tokenizer, std::span<const int32_t> tokens);

}  // namespace coppice
