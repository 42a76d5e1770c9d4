#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, WorkBudget& budget) : text_(text), budget_(budget) {}

  Rules Parse() {
    if (text_.size() > limits::kMaxGrammarBytes)
      throw Error("{} bytes; the most is {}", text_.size(), limits::kMaxGrammarBytes);
    if (!IsUtf8(text_)) throw Error("it is not UTF-8");
    for (SkipSpace(true); at_ < text_.size(); SkipSpace(true)) ParseRule();
    for (const auto& [name, number] : numbers_) {
      if (!defined_[static_cast<size_t>(number)]) throw Error("no rule defines '{}'", name);
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) throw Error("it has no rule 'root'");
    rules_.root = root->second;
    return std::move(rules_);
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw Error("line {}: {}", line, what);
  }

  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool Take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  // Also comments. A rule ends with its line, unless the line ends in an open group or behind | or ::=.
  void SkipSpace(bool over_lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  int32_t NumberOf(std::string_view name) {
    const auto [found, is_new] =
        numbers_.emplace(std::string(name), static_cast<int32_t>(rules_.rules.size()));
    if (is_new) {
      if (rules_.rules.size() >= limits::kMaxGrammarRules)
        throw Error("more than {} rules", limits::kMaxGrammarRules);
      rules_.Add();
      defined_.push_back(false);
    }
    return found->second;
  }

  std::string_view TakeName() {
    const size_t begin = at_;
    while (IsNameChar(Peek())) ++at_;
    if (at_ == begin) Fail("expected a rule's name");
    return text_.substr(begin, at_ - begin);
  }

  void ParseRule() {
    const std::string_view name = TakeName();
    SkipSpace(false);
    if (!Take("::=")) Fail("expected ::= behind the rule's name");
    const auto number = static_cast<size_t>(NumberOf(name));
    if (defined_[number]) Fail("the rule is defined a second time");
    defined_[number] = true;
    SkipSpace(true);
    rules_.rules[number] = ParseChoice(0);
    if (at_ < text_.size() && Peek() != '\n' && Peek() != '\r') Fail("expected the end of the rule");
  }

  Expr ParseChoice(int depth) {
    if (depth > limits::kMaxGrammarDepth) Fail("groups in groups are too deep");
    std::vector<Expr> choices;
    choices.push_back(ParseSequence(depth));
    while (TakeBar()) {
      SkipSpace(true);
      choices.push_back(ParseSequence(depth));
    }
    return choices.size() == 1 ? std::move(choices.front()) : Choice(std::move(choices));
  }

  // Also at the beginning of the next lines.
  bool TakeBar() {
    const size_t before = at_;
    SkipSpace(true);
    if (Take("|")) return true;
    at_ = before;
    return false;
  }

  Expr ParseSequence(int depth) {
    std::vector<Expr> parts;
    CountPart();
    while (std::optional<Expr> part = ParseAtom(depth)) {
      CountPart();
      repeats_in_a_row_ = 0;
      SkipSpace(depth > 0);
      while (ParseRepeat(*part)) SkipSpace(depth > 0);
      parts.push_back(std::move(*part));
    }
    return parts.size() == 1 ? std::move(parts.front()) : Sequence(std::move(parts));
  }

  void CountPart() {
    budget_.Spend();
    if (++parts_ > limits::kMaxGrammarParts)
      throw Error("the grammar is too large: it has more than {} parts", limits::kMaxGrammarParts);
  }

  std::optional<Expr> ParseAtom(int depth) {
    const char c = Peek();
    if (c == '"') return ParseText();
    if (c == '[') return ParseClass();
    if (Take(".")) return Chars(Normalized({{0, kMaxChar}}));
    if (Take("(")) {
      SkipSpace(true);
      Expr group = ParseChoice(depth + 1);
      if (!Take(")")) Fail("expected )");
      return group;
    }
    if (c == '<' || (c == '!' && Peek(1) == '<')) Fail("tokens (<...>) are not supported: write their text");
    if (IsNameChar(c)) return Rule(NumberOf(TakeName()));
    return std::nullopt;
  }

  Expr ParseText() {
    ++at_;
    std::string text;
    while (Peek() != '"') AppendUtf8(TakeChar(), text);
    ++at_;
    return Text(text);
  }

  Expr ParseClass() {
    ++at_;
    const bool negated = Take("^");
    CharSet set;
    while (Peek() != ']') {
      const char32_t first = TakeChar();
      char32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        last = TakeChar();
      }
      if (last < first) Fail("a range ends before it begins");
      set.push_back({first, last});
      budget_.Spend();
    }
    ++at_;
    set = Normalized(std::move(set));
    return Chars(negated ? Complement(set) : std::move(set));
  }

  // Within quotes or brackets.
  char32_t TakeChar() {
    if (at_ >= text_.size()) Fail("a text or a class does not end");
    if (Peek() == '\\') return TakeEscape();
    if (Peek() == '\n') Fail("a text or a class does not end on its line");
    const auto lead = static_cast<uint8_t>(text_[at_++]);
    if (lead < 0x80) return lead;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    auto c = static_cast<char32_t>(lead & (0x3F >> more));
    for (int i = 0; i < more; ++i) c = (c << 6) | (static_cast<uint8_t>(text_[at_++]) & 0x3F);
    return c;
  }

  char32_t TakeEscape() {
    const char kind = Peek(1);
    at_ += 2;
    switch (kind) {
      case 'x':
        return TakeHex(2);
      case 'u':
        return TakeHex(4);
      case 'U':
        return TakeHex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<char32_t>(kind);
      default:
        at_ = std::min(at_, text_.size());
        Fail("an unknown escape");
    }
  }

  char32_t TakeHex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) Fail("expected a hexadecimal digit");
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > kMaxChar || (value >= 0xD800 && value <= 0xDFFF)) Fail("an escape that is no character");
    return value;
  }

  bool ParseRepeat(Expr& part) {
    if (Take("*")) {
      part = Repeat(std::move(part), 0);
    } else if (Take("+")) {
      part = Repeat(std::move(part), 1);
    } else if (Take("?")) {
      part = Optional(std::move(part));
    } else if (Take("{")) {
      SkipSpace(false);
      const int64_t least = TakeNumber();
      int64_t most = least;
      SkipSpace(false);
      if (Take(",")) {
        SkipSpace(false);
        most = Peek() == '}' ? kNoLimit : TakeNumber();
        SkipSpace(false);
      }
      if (!Take("}")) Fail("expected }");
      if (most != kNoLimit && most < least) Fail("a repetition's end is below its beginning");
      part = Repeat(std::move(part), least, most);
    } else {
      return false;
    }
    CountPart();
    if (++repeats_in_a_row_ > limits::kMaxGrammarDepth) Fail("too many repetitions of repetitions");
    return true;
  }

  int64_t TakeNumber() {
    int64_t value = 0;
    if (Peek() < '0' || Peek() > '9') Fail("expected a number");
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > limits::kMaxGrammarRepeats) Fail("a repetition is too large");
    }
    return value;
  }

  const std::string_view text_;
  WorkBudget& budget_;
  size_t at_ = 0;
  size_t parts_ = 0;
  Rules rules_;
  std::map<std::string, int32_t, std::less<>> numbers_;
  std::vector<bool> defined_;
  int repeats_in_a_row_ = 0;
};

}  // namespace

Rules ParseGbnf(std::string_view text, WorkBudget& budget) { return GbnfParser(text, budget).Parse(); }

Rules ParseGbnf(std::string_view text) {
  WorkBudget budget;
  return ParseGbnf(text, budget);
}

}  // namespace coppice
