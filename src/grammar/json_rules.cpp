#include "grammar/json_rules.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_text.h"

namespace coppice {

using namespace grammar;  // of expressions

int32_t JsonRules::NewRule(Expr expr) {
  if (rules_.rules.size() >= limits::kMaxGrammarRules)
    throw Error("more than {} rules", limits::kMaxGrammarRules);
  return rules_.Add(std::move(expr));
}

// A rule that is made when it is first used. It has its number before its text, which may use it.
template <typename Make>
Expr JsonRules::RuleOf(std::optional<int32_t>& number, const Make& make) {
  if (!number) {
    number = NewRule({});
    const int32_t rule = *number;
    Expr made = make();
    rules_.rules[static_cast<size_t>(rule)] = std::move(made);
  }
  return Rule(*number);
}

Expr JsonRules::Space() {
  return RuleOf(space_, [] { return JsonSpace(); });
}
Expr JsonRules::AnyString() {
  return RuleOf(string_, [&] { return JsonQuoted(Repeat(AnyChar(), 0)); });
}
Expr JsonRules::AnyChar() {
  return RuleOf(char_, [] { return JsonChar(); });
}
Expr JsonRules::AnyValue() {
  return RuleOf(value_, [&] {
    return Choice(
        {AnyObject(), AnyArray(), AnyString(), AnyNumber(), Text("true"), Text("false"), Text("null")});
  });
}

Expr JsonRules::ObjectOf(const Expr& value, int64_t least, int64_t most) {
  return Sequence({Text("{"), List(Member(AnyString(), value), least, most), Space(), Text("}")});
}
Expr JsonRules::ArrayOf(const Expr& item, int64_t least, int64_t most) {
  return Sequence({Text("["), List(item, least, most), Space(), Text("]")});
}
Expr JsonRules::Member(Expr key, Expr value) {
  return Sequence({std::move(key), Text(":"), Space(), std::move(value)});
}
Expr JsonRules::List(const Expr& item, int64_t least, int64_t most) {
  if (most == 0) return Sequence({});
  const Expr rest = Repeat(Sequence({Text(","), Space(), item}), std::max<int64_t>(least - 1, 0),
                           most == kNoLimit ? kNoLimit : most - 1);
  Expr list = Sequence({Space(), item, rest});
  return least > 0 ? std::move(list) : Optional(std::move(list));
}

Expr JsonRules::AnyObject() {
  return RuleOf(object_, [&] { return ObjectOf(AnyValue()); });
}

Expr JsonRules::AnyArray() {
  return RuleOf(array_, [&] { return ArrayOf(AnyValue(), 0, kNoLimit); });
}
Expr JsonRules::AnyNumber() {
  return RuleOf(number_, [] { return JsonNumber(); });
}

Expr JsonRules::Kept(Expr expr) {
  return expr.kind == Expr::Kind::kRule ? std::move(expr) : Rule(NewRule(std::move(expr)));
}

}  // namespace coppice
