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

// A token's label: its text if that is whole characters, else "bytes:\xf0\x9f" as OpenAI writes it, so that
// tokens that are parts of characters do not look alike.
std::string TokenLabel(const std::string& bytes);

// The log-probabilities of one part of an answer at a time; text offsets continue from part to part.
class LogProbList {
 public:
  explicit LogProbList(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Adds a token whose text is `bytes`. The first token of a prompt has no log-probability.
  void Add(int32_t id, const std::string& bytes, const TokenLogProbs* known);
  bool empty() const { return entries_.empty(); }

  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; empties the list. Of tokens with the same
  // label, top_logprobs has the likeliest. It always has the token itself, with exactly the value in
  // token_logprobs (lm-evaluation-harness compares the two for equality).
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
