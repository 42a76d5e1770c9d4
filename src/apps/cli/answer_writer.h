// An answer on stdout, as its tokens come.
#pragma once

#include <optional>
#include <string>

#include "engine/answer_reader.h"
#include "engine/request.h"
#include "engine/thinking.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice::cli {

// The text as stdout gets it: for a terminal without the characters that make it act, because the model's
// author chooses its tokens.
std::string Shown(const std::string& text);
// Throws Error if stdout cannot be written.
void WriteOut(const std::string& text);

// Writes an answer to stdout. A terminal shows the thinking, dim and apart; what reads a pipe wants the
// answer.
class AnswerWriter {
 public:
  void Write(const AnswerReader::Piece& piece);
  void End();

 private:
  void EndThought();

  Utf8Stream stream_;
  bool is_dim_ = false;
};

// Ends the request's thinking where the user wants none, or so much.
void LimitThinking(const ThinkingWish& wish, const Tokenizer& tokenizer,
                   const std::optional<Thinking>& thinking, Request& request);

}  // namespace coppice::cli
