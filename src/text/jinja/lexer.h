// Splits a template into text, tag marks and the tokens inside tags, one at a time.
//
// White space follows Jinja with trim_blocks and lstrip_blocks. A minus in a mark strips white space on that
// side. The first newline after a block or comment is removed, and so is white space between the start of a
// line and a block or comment, unless a plus in the mark keeps it. Line ends become \n, and one at the very
// end of the template is removed. Source: Jinja's documentation, "Whitespace Control". Line statements are
// not supported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::jinja {

enum class TokenType {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text holds the decoded value
  kInteger,  // text holds the digits, with a prefix 0x, 0o or 0b if the source has one
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;
};

class Lexer {
 public:
  explicit Lexer(const std::string& source);
  // Throws Fault for invalid tokens; line() is then their line.
  Token Next();
  int line() const { return line_; }

 private:
  enum class State { kRoot, kVariable, kBlock };

  Token LexRoot();
  Token LexInside();
  bool TakeEndMark(Token& token);
  void SkipComment();
  bool AtRaw(size_t position, size_t& body) const;
  Token LexRaw(size_t body);
  Token LexNumber();
  Token LexString();
  Token LexOperator();
  std::string StrippedText(size_t begin, size_t mark, bool is_variable) const;
  size_t SkipSpace(size_t position) const;
  void MoveTo(size_t position);
  void EndMark(size_t position);
  std::string_view At(size_t position, size_t count) const;
  char Byte(size_t position) const { return position < source_.size() ? source_[position] : '\0'; }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  State state_ = State::kRoot;
  bool line_starting_ = true;   // position_ is at the start of a line
  std::vector<char> brackets_;  // open brackets; a tag can end only outside of them
};

}  // namespace coppice::jinja
