#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/unicode/unicode.h"

namespace coppice::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
// Non-ASCII bytes count as letters: Python allows most of them in names.
bool IsNameByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

std::string NormalizedLineEnds(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

char SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

// Reads the number in \x41, \u0041, \U00000041 or \101, whose digits start at `i`; advances `i` past them.
char32_t NumberEscape(std::string_view body, size_t& i, size_t max_digits, int bits) {
  char32_t value = 0;
  size_t digits = 0;
  for (; digits < max_digits && i < body.size(); ++digits, ++i) {
    const char c = body[i];
    if (bits == 3 ? (c < '0' || c > '7') : !IsHex(c)) break;
    value = (value << bits) | static_cast<char32_t>(IsDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if ((bits == 4 && digits < max_digits) || value > 0x10FFFF) throw Fault("bad escape in a string");
  return value;
}

std::string Unescaped(std::string_view body) {
  std::string out;
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      out.push_back(body[i++]);
      continue;
    }
    const char c = body[i + 1];  // the lexer ends no string after a single backslash
    i += 2;
    if (const char simple = SimpleEscape(c); simple != '\0') {
      out.push_back(simple);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      char32_t value = NumberEscape(body, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 4);
      if (value >= 0xD800 && value < 0xE000) value = 0xFFFD;  // UTF-8 cannot encode a surrogate
      AppendUtf8(value, out);
    } else if (c >= '0' && c <= '7') {
      --i;
      AppendUtf8(NumberEscape(body, i, 3, 3), out);
    } else if (c != '\n') {  // a backslash before a newline joins two lines
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

Lexer::Lexer(const std::string& source) : source_(NormalizedLineEnds(source)) {}

std::string_view Lexer::At(size_t position, size_t count) const {
  return position < source_.size() ? std::string_view(source_).substr(position, count) : std::string_view();
}

size_t Lexer::SkipSpace(size_t position) const {
  while (position < source_.size()) {
    const CodePoint c = DecodeAt(source_, position);
    if (!IsSpace(c.value)) break;
    position += c.bytes;
  }
  return position;
}

void Lexer::MoveTo(size_t position) {
  line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                       source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
  position_ = position;
}

// Leaves a tag. If the mark consumed a newline, the text after it starts a line.
void Lexer::EndMark(size_t position) {
  line_starting_ = position > 0 && source_[position - 1] == '\n';
  MoveTo(position);
}

Token Lexer::Next() {
  while (state_ == State::kRoot) {
    if (position_ >= source_.size()) return {TokenType::kEnd, "", line_};
    Token token = LexRoot();
    if (token.type != TokenType::kText || !token.text.empty()) return token;
  }
  return LexInside();
}

// The text before a mark, without the white space that the mark removes.
std::string Lexer::StrippedText(size_t begin, size_t mark, bool is_variable) const {
  const std::string_view text = std::string_view(source_).substr(begin, mark - begin);
  const char sign = Byte(mark + 2);
  if (sign == '-') return std::string(Strip(text, Ends::kRight));
  if (sign != '+' && !is_variable) {
    const size_t newline = text.rfind('\n');
    if (newline != std::string_view::npos || line_starting_) {
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if (Strip(text.substr(line_begin), Ends::kLeft).empty()) return std::string(text.substr(0, line_begin));
    }
  }
  return std::string(text);
}

// Returns the text up to the next mark, or the mark itself; an empty text in place of a comment.
Token Lexer::LexRoot() {
  size_t mark = position_;
  while (true) {
    mark = source_.find('{', mark);
    if (mark == std::string::npos) mark = source_.size();
    const char kind = Byte(mark + 1);
    if (mark == source_.size() || kind == '{' || kind == '%' || kind == '#') break;
    ++mark;
  }
  if (mark > position_) {
    Token token{TokenType::kText, "", line_};
    token.text = mark == source_.size() ? source_.substr(position_)
                                        : StrippedText(position_, mark, Byte(mark + 1) == '{');
    MoveTo(mark);
    return token;
  }
  const char kind = Byte(mark + 1);
  size_t body = 0;
  if (kind == '%' && AtRaw(mark, body)) return LexRaw(body);
  const bool has_sign = Byte(mark + 2) == '-' || Byte(mark + 2) == '+';
  MoveTo(mark + (has_sign ? 3 : 2));
  if (kind == '#') {
    SkipComment();
    return {TokenType::kText, "", line_};
  }
  state_ = kind == '{' ? State::kVariable : State::kBlock;
  return {kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "", line_};
}

void Lexer::SkipComment() {
  const size_t end = source_.find("#}", position_);
  if (end == std::string::npos) throw Fault("a comment has no end");
  const char sign = end > position_ ? source_[end - 1] : '\0';
  size_t after = end + 2;
  if (sign == '-') {
    after = SkipSpace(after);
  } else if (sign != '+' && Byte(after) == '\n') {
    ++after;
  }
  EndMark(after);
}

// Whether a raw block starts at `position`; sets `body` to the start of its text.
bool Lexer::AtRaw(size_t position, size_t& body) const {
  size_t i = position + 2;
  if (Byte(i) == '-' || Byte(i) == '+') ++i;
  i = SkipSpace(i);
  if (At(i, 3) != "raw") return false;
  i = SkipSpace(i + 3);
  if (At(i, 3) == "-%}") {
    body = SkipSpace(i + 3);
    return true;
  }
  body = i + 2;
  return At(i, 2) == "%}";
}

Token Lexer::LexRaw(size_t body) {
  EndMark(body);
  for (size_t mark = source_.find("{%", body); mark != std::string::npos;
       mark = source_.find("{%", mark + 2)) {
    size_t i = mark + 2;
    if (Byte(i) == '-' || Byte(i) == '+') ++i;
    i = SkipSpace(i);
    if (At(i, 6) != "endraw") continue;
    i = SkipSpace(i + 6);
    const bool strips = At(i, 3) == "-%}";
    const bool keeps = At(i, 3) == "+%}";
    if (!strips && !keeps && At(i, 2) != "%}") continue;
    Token token{TokenType::kText, StrippedText(body, mark, false), line_};
    size_t after = i + (strips || keeps ? 3 : 2);
    if (strips) {
      after = SkipSpace(after);
    } else if (!keeps && Byte(after) == '\n') {
      ++after;
    }
    EndMark(after);
    return token;
  }
  throw Fault("a raw block has no end");
}

bool Lexer::TakeEndMark(Token& token) {
  const bool variable = state_ == State::kVariable;
  const std::string_view close = variable ? "}}" : "%}";
  const char sign = Byte(position_);
  const bool strips = sign == '-' && At(position_ + 1, 2) == close;
  const bool keeps = !variable && sign == '+' && At(position_ + 1, 2) == close;
  if (!strips && !keeps && At(position_, 2) != close) return false;
  size_t after = position_ + (strips || keeps ? 3 : 2);
  if (strips) {
    after = SkipSpace(after);
  } else if (!variable && !keeps && Byte(after) == '\n') {
    ++after;
  }
  token = {variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "", line_};
  state_ = State::kRoot;
  EndMark(after);
  return true;
}

Token Lexer::LexInside() {
  Token token;
  MoveTo(SkipSpace(position_));
  if (position_ >= source_.size()) throw Fault("the template ends inside a tag");
  if (brackets_.empty() && TakeEndMark(token)) return token;
  const char c = source_[position_];
  if (IsDigit(c)) return LexNumber();
  if (c == '"' || c == '\'') return LexString();
  if (!IsNameByte(c)) return LexOperator();
  size_t end = position_;
  while (IsNameByte(Byte(end)) && end < source_.size()) ++end;
  token = {TokenType::kName, source_.substr(position_, end - position_), line_};
  MoveTo(end);
  return token;
}

Token Lexer::LexNumber() {
  const auto digits = [this](size_t i, auto accept) {
    while (accept(Byte(i)) || (Byte(i) == '_' && accept(Byte(i + 1)))) ++i;
    return i;
  };
  Token token{TokenType::kInteger, "", line_};
  const char prefix = static_cast<char>(Byte(position_ + 1) | 0x20);
  const bool prefixed = source_[position_] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b');
  size_t end = prefixed ? digits(position_ + 2, IsHex) : digits(position_, IsDigit);
  if (!prefixed) {
    if (Byte(end) == '.' && IsDigit(Byte(end + 1))) {
      token.type = TokenType::kFloat;
      end = digits(end + 1, IsDigit);
    }
    const size_t sign = Byte(end + 1) == '+' || Byte(end + 1) == '-' ? 1 : 0;
    if ((Byte(end) | 0x20) == 'e' && IsDigit(Byte(end + 1 + sign))) {
      token.type = TokenType::kFloat;
      end = digits(end + 1 + sign, IsDigit);
    }
  }
  token.text = source_.substr(position_, end - position_);
  std::erase(token.text, '_');
  MoveTo(end);
  return token;
}

Token Lexer::LexString() {
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) throw Fault("a string has no end");
  Token token{TokenType::kString,
              Unescaped(std::string_view(source_).substr(position_ + 1, end - position_ - 1)), line_};
  MoveTo(end + 1);
  return token;
}

Token Lexer::LexOperator() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  std::string_view text = At(position_, 2);
  if (std::find(std::begin(kTwo), std::end(kTwo), text) == std::end(kTwo)) text = At(position_, 1);
  const char c = text[0];
  if (text.size() == 1 && kOne.find(c) == std::string_view::npos)
    throw Fault("unexpected character '{}'", text);
  if (c == '(' || c == '[' || c == '{') brackets_.push_back(c);
  if (c == ')' || c == ']' || c == '}') {
    const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (brackets_.empty() || brackets_.back() != open) throw Fault("unexpected '{}'", c);
    brackets_.pop_back();
  }
  Token token{TokenType::kOperator, std::string(text), line_};
  MoveTo(position_ + text.size());
  return token;
}

}  // namespace coppice::jinja
