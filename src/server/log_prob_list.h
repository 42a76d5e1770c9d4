// Log-probabilities as OpenAI's replies list them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/log_probs.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// How a token shows: its text where that is whole characters, else "bytes:\xf0\x9f" as OpenAI wrote them, so that
// tokens which are parts of characters do not look alike.
std::string TokenLabel(const std::string& bytes);

// The list that belongs to a part of an answer; it goes on where the part before it ended.
class LogProbList {
 public:
  explicit LogProbList(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A token whose text is `bytes`, and what is known of it; nothing is, of the first of a prompt.
  void Add(int32_t id, const std::string& bytes, const TokenLogProbs* known);
  bool empty() const { return entries_.empty(); }

  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; the list is empty afterwards. Of tokens that show
  // alike, the likeliest stands in top_logprobs, and the token itself always does, with the very value that
  // token_logprobs has (lm-evaluation-harness compares the two for equality).
  nlohmann::ordered_json TakeCompletion();
  // {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
  nlohmann::ordered_json TakeChat();

 private:
  struct Entry {
    std::string label;
    std::string bytes;
    size_t offset;  // in characters of the text
    std::optional<TokenLogProbs> known;
  };
  std::string Bytes(int32_t id) const { return tokenizer_.Piece(id, true); }

  const Tokenizer& tokenizer_;
  std::vector<Entry> entries_;
  size_t offset_ = 0;
};

}  // namespace coppice
