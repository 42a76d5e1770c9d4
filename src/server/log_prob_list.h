// Log-probabilities as OpenAI's replies list them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "model/log_probs.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// A token's label: its text if that is whole characters, else "bytes:\xf0\x9f" as OpenAI writes it, so that
// tokens that are parts of characters do not look alike.
std::string TokenLabel(const std::string& bytes);

// The log-probabilities of one part of an answer at a time; text offsets continue from part to part. Kept as
// the JSON that is sent, because a JSON document takes several times its text.
class LogProbList {
 public:
  LogProbList(const Tokenizer& tokenizer, bool is_chat) : tokenizer_(tokenizer), is_chat_(is_chat) {}

  // Adds a token whose text is `bytes`. The first token of a prompt has no log-probability.
  void Add(int32_t id, const std::string& bytes, const TokenLogProbs* known);
  size_t size() const { return size_; }
  // Of the JSON so far.
  size_t bytes() const;
  // In characters of the text: where the next token begins.
  size_t offset() const { return offset_; }
  void StartAt(size_t offset) { offset_ = offset; }

  // The tokens of `front`, if there is one, and those of this list as JSON; empties this list. Of a
  // completion: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Of tokens with the same label,
  // top_logprobs has the likeliest. It always has the token itself, with exactly the value in token_logprobs
  // (lm-evaluation-harness compares the two for equality). Of a chat: {"content": [{"token", "logprob",
  // "bytes", "top_logprobs"}], "refusal"}
  std::string Take(const LogProbList* front = nullptr);
  // Of a chat: the entries alone, as a list.
  std::string TakeEntries();

 private:
  std::string Bytes(int32_t id) const { return tokenizer_.Piece(id, true); }
  std::string ChatEntry(int32_t id, const std::string& label, const std::string& bytes,
                        const TokenLogProbs* known) const;
  std::string Tops(const std::string& label, const TokenLogProbs& known) const;

  const Tokenizer& tokenizer_;
  const bool is_chat_;
  // The elements of each list, without its brackets. A chat has one list, a completion four.
  std::array<std::string, 4> lists_;
  size_t size_ = 0;
  size_t offset_ = 0;
};

}  // namespace coppice
