// JSON values of any shape as rules of a grammar, each made when it is first used.
#pragma once

#include <cstdint>
#include <optional>

#include "grammar/rules.h"

namespace coppice {

class JsonRules {
 public:
  explicit JsonRules(grammar::Rules& rules) : rules_(rules) {}

  // Throws Error beyond limits::kMaxGrammarRules.
  int32_t NewRule(grammar::Expr expr);
  // As a rule, for what is used more than once.
  grammar::Expr Kept(grammar::Expr expr);

  grammar::Expr Space();
  grammar::Expr AnyChar();  // of a string
  grammar::Expr AnyString();
  grammar::Expr AnyValue();
  grammar::Expr AnyObject();
  grammar::Expr AnyArray();
  grammar::Expr AnyNumber();

  grammar::Expr Member(grammar::Expr key, grammar::Expr value);
  // `least` to `most` (kNoLimit: any number) items with commas between them.
  grammar::Expr List(const grammar::Expr& item, int64_t least, int64_t most);
  // Members with any names.
  grammar::Expr ObjectOf(const grammar::Expr& value, int64_t least = 0, int64_t most = grammar::kNoLimit);
  grammar::Expr ArrayOf(const grammar::Expr& item, int64_t least, int64_t most);

 private:
  template <typename Make>
  grammar::Expr RuleOf(std::optional<int32_t>& number, const Make& make);

  grammar::Rules& rules_;
  std::optional<int32_t> space_;
  std::optional<int32_t> char_;
  std::optional<int32_t> string_;
  std::optional<int32_t> value_;
  std::optional<int32_t> object_;
  std::optional<int32_t> array_;
  std::optional<int32_t> number_;
};

}  // namespace coppice
