// Regular expressions of schemas and of whole answers, with the compilation of what was read and a walk
// along it.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/grammar_walk.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {"^[a-z_]+(?:\\.[a-z]{2,4})?$", "(?<year>\\d{4})-(0[1-9]|1[0-2])|^never$",
          "a.*b|^c|d$|[^\\s\\u00e4-\\uffff]", "((a|b){2,3}c?)+\\x41\\W"};
}

bool Run(std::string_view input) {
  const auto spell = [](const grammar::CharSet& set) { return grammar::Chars(set); };
  const auto walk = [&](grammar::Expr expr) {
    grammar::Rules rules;
    rules.root = rules.Add(std::move(expr));
    WalkAlong(CompiledWithin(BudgetOf(input), rules));
  };
  const bool plain = Accepts([&] { walk(ParseRegex(input, spell)); });
  const bool quoted = Accepts([&] { walk(JsonQuoted(ParseRegex(input, &JsonCharOf))); });
  return plain || quoted;
}

}  // namespace

FuzzTarget RegexTarget() {
  return {"regex",
          Seeds,
          {"^",   "$", "|",   "(",     ")",        "(?:",        "[^",      "[",     "]",
           "*",   "+", "?",   "{2,3}", "{100000}", "{0,100000}", "{5,}",    "()",    "(|)",
           "()*", ".", "\\d", "\\W",   "\\S",      "\\u00e4",    "\\uffff", "\\x41", "a-z"},
          Run};
}

}  // namespace coppice
