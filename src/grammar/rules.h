// A context-free grammar over Unicode characters, as the parsers of GBNF and JSON schemas build it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice::grammar {

struct CharRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive
};

inline constexpr char32_t kMaxChar = 0x10FFFF;
inline constexpr int64_t kNoLimit = -1;

// Sorted, disjoint, without surrogates (they have no UTF-8).
using CharSet = std::vector<CharRange>;
CharSet Normalized(CharSet ranges);
CharSet Complement(const CharSet& set);
CharSet Intersection(const CharSet& a, const CharSet& b);

// What a rule stands for.
struct Expr {
  enum class Kind {
    kText,      // these bytes
    kChars,     // one character of the set
    kRule,      // what rule number `rule` stands for
    kSequence,  // the parts, one after another; without parts: nothing
    kChoice,    // one of the parts
    kRepeat,    // parts[0], `least` to `most` times
    kUntil,     // any bytes up to the first place where they end with `text`, which belongs to them
    kWithout,   // any bytes that do not contain `text`
  };
  Kind kind = Kind::kSequence;
  std::string text = {};
  CharSet chars = {};
  int32_t rule = 0;
  std::vector<Expr> parts = {};
  int64_t least = 0;
  int64_t most = kNoLimit;
};

inline Expr Text(std::string_view text) { return {.kind = Expr::Kind::kText, .text = std::string(text)}; }
inline Expr Chars(CharSet set) { return {.kind = Expr::Kind::kChars, .chars = std::move(set)}; }
inline Expr Rule(int32_t rule) { return {.kind = Expr::Kind::kRule, .rule = rule}; }
inline Expr Sequence(std::vector<Expr> parts) { return {.parts = std::move(parts)}; }
inline Expr Choice(std::vector<Expr> parts) {
  return {.kind = Expr::Kind::kChoice, .parts = std::move(parts)};
}
inline Expr Repeat(Expr part, int64_t least, int64_t most = kNoLimit) {
  Expr repeat{.kind = Expr::Kind::kRepeat, .least = least, .most = most};
  repeat.parts.push_back(std::move(part));
  return repeat;
}
inline Expr Optional(Expr part) { return Repeat(std::move(part), 0, 1); }
inline Expr Until(std::string_view text) { return {.kind = Expr::Kind::kUntil, .text = std::string(text)}; }
inline Expr Without(std::string_view text) {
  return {.kind = Expr::Kind::kWithout, .text = std::string(text)};
}

// The expression and all in it.
inline size_t CountExprs(const Expr& expr) {
  size_t count = 1 + expr.chars.size() / 8 + expr.text.size() / 64;
  for (const Expr& part : expr.parts) count += CountExprs(part);
  return count;
}

struct Rules {
  std::vector<Expr> rules;
  int32_t root = 0;
  size_t work = 0;  // of making the rules, in steps that their parsers count and limit

  int32_t Add(Expr expr = {}) {
    rules.push_back(std::move(expr));
    return static_cast<int32_t>(rules.size()) - 1;
  }
};

}  // namespace coppice::grammar
