#include "grammar/json_text.h"

#include <fmt/format.h>

namespace coppice {

using namespace grammar;  // of expressions

namespace {

constexpr int64_t kMostIndent = 24;
constexpr int64_t kMostSignificantDigits = 16;

CharSet Hex() { return Normalized({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); }
// What may stand in a string without an escape. DEL may, but nobody wants it.
CharSet Plain() { return Complement(Normalized({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}})); }
Expr Digits(int64_t least, int64_t most) { return Repeat(Chars({{'0', '9'}}), least, most); }

// The four digits behind \u: a character outside the surrogates, or a pair of them.
Expr UnicodeDigits() {
  const Expr hex = Chars(Hex());
  const Expr high = Sequence(
      {Chars({{'D', 'D'}, {'d', 'd'}}), Chars(Normalized({{'8', '9'}, {'a', 'b'}, {'A', 'B'}})), hex, hex});
  const Expr low =
      Sequence({Chars({{'D', 'D'}, {'d', 'd'}}), Chars(Normalized({{'c', 'f'}, {'C', 'F'}})), hex, hex});
  return Choice({Sequence({Chars(Normalized({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}})),
                           hex, hex, hex}),
                 Sequence({Chars({{'D', 'D'}, {'d', 'd'}}), Chars({{'0', '7'}}), hex, hex}),
                 Sequence({high, Text("\\u"), low})});
}

std::string Escaped(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }
}

}  // namespace

Expr JsonSpace() {
  return Optional(Choice({Text(" "), Sequence({Repeat(Text("\n"), 1, 2),
                                               Repeat(Chars({{'\t', '\t'}, {' ', ' '}}), 0, kMostIndent)})}));
}

Expr JsonChar() {
  CharSet simple;
  for (const char c : std::string_view("\"\\/bfnrt"))
    simple.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return Choice({Chars(Plain()), Sequence({Text("\\"), Chars(Normalized(simple))}),
                 Sequence({Text("\\u"), UnicodeDigits()})});
}

Expr JsonCharOf(const CharSet& set) {
  std::vector<Expr> spellings{Chars(Intersection(set, Plain()))};
  for (const CharRange& range : Intersection(set, Complement(Plain()))) {
    for (char32_t c = range.first; c <= range.last; ++c) spellings.push_back(Text(Escaped(c)));
  }
  return Choice(std::move(spellings));
}

Expr JsonQuoted(Expr chars) { return Sequence({Text("\""), std::move(chars), Text("\"")}); }

Expr JsonInteger() {
  return Sequence(
      {Optional(Text("-")),
       Choice({Text("0"), Sequence({Chars({{'1', '9'}}), Digits(0, kMostSignificantDigits - 1)})})});
}

Expr JsonNumber() {
  return Sequence({JsonInteger(), Optional(Sequence({Text("."), Digits(1, kMostSignificantDigits)})),
                   Optional(Sequence({Chars({{'E', 'E'}, {'e', 'e'}}),
                                      Optional(Chars({{'+', '+'}, {'-', '-'}})), Digits(1, 2)}))});
}

}  // namespace coppice
