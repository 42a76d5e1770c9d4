#include "grammar/json_text.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

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

// The letter behind the backslash of a character that has one of its own, or 0.
char EscapeLetter(char32_t c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return '\0';
  }
}

// The escapes of characters that need one, common beginnings once: written out one by one, they would make
// the most of a pattern's automaton, because any text may stand around a pattern.
Expr Escapes(const CharSet& set) {
  const auto one = [](char c) { return CharRange{static_cast<char32_t>(c), static_cast<char32_t>(c)}; };
  CharSet letters;
  std::map<char, CharSet> digits;  // behind u00: the last one, by the one before
  for (const CharRange& range : set) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      const std::string_view hex = "0123456789abcdef";
      if (const char letter = EscapeLetter(c)) {
        letters.push_back(one(letter));
      } else {
        digits[hex[c >> 4]].push_back(one(hex[c & 0xF]));
      }
    }
  }
  std::vector<Expr> codes;
  for (auto& [high, low] : digits)
    codes.push_back(Sequence({Chars({one(high)}), Chars(Normalized(std::move(low)))}));
  std::vector<Expr> kinds;
  if (!letters.empty()) kinds.push_back(Chars(Normalized(std::move(letters))));
  if (!codes.empty()) kinds.push_back(Sequence({Text("u00"), Choice(std::move(codes))}));
  return Sequence({Text("\\"), Choice(std::move(kinds))});
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
  static const CharSet plain = Plain();
  static const CharSet others = Complement(plain);
  const CharSet escaped = Intersection(set, others);
  Expr as_it_is = Chars(Intersection(set, plain));
  if (escaped.empty()) return as_it_is;
  if (as_it_is.chars.empty()) return Escapes(escaped);
  return Choice({std::move(as_it_is), Escapes(escaped)});
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
