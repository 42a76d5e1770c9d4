// What a caller may ask of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// How a model is loaded.
struct LlmOptions {
  std::string prune = "none";  // for requests that do not choose: a method spec, or "auto" (docs/methods.md)
  int64_t context = 0;         // positions that a sequence may take; 0: what the model was trained for
  int threads = 0;             // 0: all usable cores
  int64_t cache_mib = 4096;    // memory for the beginnings of prompts that later prompts reuse; 0: none
  std::vector<std::string> more = {};  // further options of `coppice serve`: {"--cache-type", "q8_0"}
};

// Tokens [begin, end) of a prompt.
struct LlmSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// One request. Unset members have the defaults of `coppice serve`.
struct LlmRequest {
  int64_t max_tokens = -1;  // -1: until the model stops or the context is full
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::optional<int64_t> top_k = {};
  std::optional<uint64_t> seed = {};
  std::vector<std::string> stop = {};
  std::optional<std::string> prune = {};
  std::vector<LlmSpan> protect = {};  // tokens that no method may leave out
  std::string json_schema = {};       // the answer is JSON of this schema; empty: any text
  std::string more = {};  // further fields of docs/server.md, as a JSON object: R"({"min_p": 0.1})"
  // Gets the answer piece by piece. Returning false ends the request: the call throws kCancelled.
  std::function<bool(std::string_view text)> on_text = {};
  // Gets the prompt's tokens that are read, of how many.
  std::function<bool(int64_t processed, int64_t total)> on_progress = {};
};

// A message of a chat.
struct LlmMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  bool is_question = false;  // methods score the prompt with it; by default the user's last message
};

}  // namespace coppice
