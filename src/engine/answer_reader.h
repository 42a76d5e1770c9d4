// Turns an answer's tokens into what the model thinks and what it says, and ends thinking that is too long.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/thinking.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// How the answer to this prompt, which the template has made, marks its thinking; nullopt if the template has
// no marks for that. `continued`: as in ThinkingStartOf().
std::optional<Thinking> ThinkingOf(const Tokenizer& tokenizer, std::string_view chat_template,
                                   std::span<const int32_t> prompt,
                                   std::optional<std::string_view> continued = {});

// Of these texts, those that are control tokens.
std::vector<int32_t> ControlTokens(const Tokenizer& tokenizer, std::span<const std::string_view> texts);

class AnswerReader {
 public:
  // `thinking`: nullopt leaves the bytes of the tokens as they are. `written`: control tokens whose written
  // form belongs to the text. `tokenizer` must outlive this object.
  AnswerReader(const Tokenizer& tokenizer, const std::optional<Thinking>& thinking,
               std::vector<int32_t> written = {});

  struct Piece {
    std::string thought;
    std::string text;  // whole characters, if thinking is told apart
    // The token belongs to the answer, or that is not known yet; false: to the thinking or its marks.
    bool is_answer = true;
    bool left_out = false;  // marks or white space were left out, perhaps those of earlier tokens

    Piece& operator+=(const Piece& more) {
      thought += more.thought;
      text += more.text;
      return *this;
    }
  };
  Piece Push(int32_t id);
  // The answer has ended.
  Piece Flush();
  bool thinking() const { return splitter_ && splitter_->thinking(); }
  // Tokens that belong to the thinking so far, its marks included.
  int64_t thinking_tokens() const { return thinking_tokens_; }
  // Nothing of a character is held back.
  bool is_whole() const { return is_whole_; }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<int32_t> written_;
  std::vector<int32_t> marks_;  // control tokens that are marks of thinking
  std::optional<ThinkingSplitter> splitter_;
  Utf8Stream characters_;
  bool is_whole_ = true;
  int64_t thinking_tokens_ = 0;
};

// Ends thinking that has used up its budget, of the whole answer: by the mark that closes it, token by token.
class ThinkingBudget {
 public:
  // `tokens`: as many may be thought. `tokenizer` must outlive this object.
  ThinkingBudget(const Tokenizer& tokenizer, const Thinking& thinking, int64_t tokens);

  // As Request::force.
  std::optional<int32_t> Next(std::span<const int32_t> answer);

 private:
  void Read(int32_t id);
  void Begin(const std::string& close);

  const Tokenizer& tokenizer_;
  const Thinking thinking_;
  const int64_t most_;
  std::vector<int32_t> close_;  // what is written now, or next
  std::optional<AnswerReader> reader_;
  int64_t read_ = 0;     // tokens of the answer
  int64_t thought_ = 0;  // of these, those behind a mark that opens thinking
  bool forces_ = false;
  size_t forced_ = 0;  // of close_
};

}  // namespace coppice
