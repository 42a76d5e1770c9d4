#include "grammar/regex_rules.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

CharSet AllChars() { return Normalized({{0, kMaxChar}}); }
CharSet DigitChars() { return {{'0', '9'}}; }
CharSet WordChars() { return Normalized({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CharSet SpaceChars() {  // of ECMA-262: WhiteSpace and LineTerminator
  return Normalized({{'\t', '\r'},
                     {' ', ' '},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000},
                     {0xFEFF, 0xFEFF}});
}

class RegexParser {
 public:
  RegexParser(std::string_view text, const std::function<Expr(const CharSet&)>& spell)
      : text_(text), spell_(spell) {}

  Expr Parse() {
    if (text_.size() > limits::kMaxGrammarBytes) Fail("is too long");
    if (!IsUtf8(text_)) Fail("is not UTF-8");
    do {
      ParseAnchored();
    } while (Take("|"));
    if (at_ < text_.size()) Fail("has a ) without (");
    return Alternatives();
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw Error("the pattern '{}' {}", text_.substr(0, 100), what);
  }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool Take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void ParseAnchored() {
    const size_t begins = Take("^") ? 1 : 0;
    Expr sequence = ParseSequence(0);
    const size_t ends = Take("$") ? 1 : 0;
    anchored_[begins][ends].push_back(std::move(sequence));
  }

  // Alternatives with the same anchors share the text of any kind around them: written in JSON it is large.
  Expr Alternatives() {
    const Expr anything = Repeat(spell_(AllChars()), 0);
    std::vector<Expr> choices;
    for (const size_t begins : {0, 1}) {
      for (const size_t ends : {0, 1}) {
        std::vector<Expr>& some = anchored_[begins][ends];
        if (some.empty()) continue;
        std::vector<Expr> parts;
        if (begins == 0) parts.push_back(anything);
        parts.push_back(Choice(std::move(some)));
        if (ends == 0) parts.push_back(anything);
        choices.push_back(Sequence(std::move(parts)));
      }
    }
    return Choice(std::move(choices));
  }

  // The parts of the result are counted, because one sign of a pattern can take dozens.
  void Count(size_t parts) {
    parts_ += parts;
    if (parts_ > limits::kMaxGrammarParts)
      throw Error("the grammar is too large: the pattern '{}' has more than {} parts", text_.substr(0, 100),
                  limits::kMaxGrammarParts);
  }
  static size_t PartsOf(const Expr& expr) {
    size_t parts = 1 + expr.chars.size();
    for (const Expr& part : expr.parts) parts += PartsOf(part);
    return parts;
  }
  Expr Spelled(const CharSet& set) {
    Expr expr = spell_(set);
    Count(PartsOf(expr));
    return expr;
  }

  Expr ParseChoice(int depth) {
    if (depth > limits::kMaxGrammarDepth) Fail("has groups in groups that are too deep");
    std::vector<Expr> choices;
    do {
      choices.push_back(ParseSequence(depth));
    } while (Take("|"));
    return Choice(std::move(choices));
  }

  Expr ParseSequence(int depth) {
    Count(1);
    std::vector<Expr> parts;
    while (at_ < text_.size() && Peek() != '|' && Peek() != ')') {
      if (Peek() == '$' && depth == 0 && (at_ + 1 == text_.size() || Peek(1) == '|')) break;
      Expr part = ParseAtom(depth);
      ParseRepeat(part);
      parts.push_back(std::move(part));
    }
    return Sequence(std::move(parts));
  }

  Expr ParseAtom(int depth) {
    if (Take("(")) {
      if (Take("?:") || !Take("?")) return TakeGroup(depth);
      if (Peek() != '<' || Peek(1) == '=' || Peek(1) == '!')
        Fail("looks ahead or behind, which is not supported");
      at_ = std::min(text_.find('>', at_), text_.size() - 1) + 1;  // a name
      return TakeGroup(depth);
    }
    if (Take("[")) return Spelled(TakeClass());
    if (Take(".")) return Spelled(Complement(Normalized({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
    if (Peek() == '^' || Peek() == '$') Fail("has ^ or $ in the middle, which is not supported");
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') Fail("repeats nothing");
    return Spelled(TakeChars());
  }

  Expr TakeGroup(int depth) {
    Expr group = ParseChoice(depth + 1);
    if (!Take(")")) Fail("has a ( without )");
    return group;
  }

  // One character, or the set that an escape stands for.
  CharSet TakeChars() {
    if (Peek() != '\\') {
      const char32_t c = TakeChar();
      return Normalized({{c, c}});
    }
    ++at_;
    const char kind = Peek();
    ++at_;
    switch (kind) {
      case 'd':
        return DigitChars();
      case 'D':
        return Complement(DigitChars());
      case 'w':
        return WordChars();
      case 'W':
        return Complement(WordChars());
      case 's':
        return SpaceChars();
      case 'S':
        return Complement(SpaceChars());
      default:
        const char32_t c = TakeEscape(kind);
        return Normalized({{c, c}});
    }
  }

  char32_t TakeChar() {
    if (at_ >= text_.size()) Fail("ends too early");
    const Char c = DecodeUtf8(text_, at_);
    at_ += c.size;
    return c.code;
  }

  // Behind the backslash and `kind`.
  char32_t TakeEscape(char kind) {
    switch (kind) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        return TakeHex(2);
      case 'u':
        return TakeHex(4);
      default:
        break;
    }
    const bool is_sign = (kind > 0x20 && kind < '0') || (kind > '9' && kind < 'A') ||
                         (kind > 'Z' && kind < 'a') || (kind > 'z' && kind < 0x7F);
    if (!is_sign) Fail("has an escape that is not supported");
    return static_cast<char32_t>(kind);
  }

  char32_t TakeHex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const std::string_view all = "0123456789abcdef";
      const char c = Peek();
      const size_t digit = all.find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (digit == std::string_view::npos) Fail("has an escape without its digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  CharSet TakeClass() {
    const bool negated = Take("^");
    CharSet set;
    while (!Take("]")) {
      if (at_ >= text_.size()) Fail("has a [ without ]");
      const CharSet first = TakeChars();
      Count(first.size());
      if (Peek() != '-' || Peek(1) == ']') {
        set.insert(set.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      const CharSet last = TakeChars();
      if (first.size() != 1 || last.size() != 1 || first[0].first != first[0].last ||
          last[0].first != last[0].last || last[0].first < first[0].first) {
        Fail("has a range that is none");
      }
      set.push_back({first[0].first, last[0].first});
    }
    set = Normalized(std::move(set));
    return negated ? Complement(set) : set;
  }

  void ParseRepeat(Expr& part) {
    Count(1);
    if (Take("*")) {
      part = Repeat(std::move(part), 0);
    } else if (Take("+")) {
      part = Repeat(std::move(part), 1);
    } else if (Take("?")) {
      part = Optional(std::move(part));
    } else if (Peek() == '{') {
      ++at_;
      const int64_t least = TakeNumber();
      int64_t most = least;
      if (Take(",")) most = Peek() == '}' ? kNoLimit : TakeNumber();
      if (!Take("}") || (most != kNoLimit && most < least)) Fail("has a repetition that is none");
      part = Repeat(std::move(part), least, most);
    } else {
      return;
    }
    Take("?");  // as few as possible: the same texts
  }

  int64_t TakeNumber() {
    int64_t value = 0;
    if (Peek() < '0' || Peek() > '9') Fail("has a repetition that is none");
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > limits::kMaxGrammarRepeats) Fail("has a repetition that is too large");
    }
    return value;
  }

  const std::string_view text_;
  const std::function<Expr(const CharSet&)>& spell_;
  size_t at_ = 0;
  size_t parts_ = 0;
  std::vector<Expr> anchored_[2][2];  // the alternatives, by whether ^ and whether $ stand there
};

}  // namespace

Expr ParseRegex(std::string_view pattern, const std::function<Expr(const CharSet&)>& spell) {
  return RegexParser(pattern, spell).Parse();
}

}  // namespace coppice
