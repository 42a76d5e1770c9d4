// JSON schemas (drafts 4 to 2020-12) as a grammar of the JSON texts that they allow.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/limits.h"
#include "grammar/rules.h"
#include "grammar/work_budget.h"

namespace coppice {

// Adds rules for values that fit `schema`, and returns the expression for one value. Every text of the
// grammar fits the schema, but not every value that fits has a text: members come in the order of
// `properties`, those that no property names only if additionalProperties is there (or there are no
// properties), keywords of a type stand for that type, and white space is bounded. Throws Error for keywords
// that a grammar cannot keep (`not`, uniqueItems, ...), so that none is ignored silently; annotations and
// unknown formats are ignored, as the standard says.
grammar::Expr AddJsonSchema(const nlohmann::ordered_json& schema, grammar::Rules& rules, WorkBudget& budget);
inline grammar::Expr AddJsonSchema(const nlohmann::ordered_json& schema, grammar::Rules& rules) {
  WorkBudget budget;
  return AddJsonSchema(schema, rules, budget);
}

// The same for the arguments of a function, which are an object: keywords that a grammar cannot keep go into
// `not_enforced`, and so do lengths and counts above `most_repeats`; a part of the schema that is wrong goes
// there in words. The rest is kept. Throws Error only if the rules are too
// many, or the work is beyond the budget.
grammar::Expr AddArguments(const nlohmann::ordered_json& schema, grammar::Rules& rules,
                           std::vector<std::string>& not_enforced, WorkBudget& budget,
                           int64_t most_repeats = limits::kMaxGrammarRepeats);
inline grammar::Expr AddArguments(const nlohmann::ordered_json& schema, grammar::Rules& rules,
                                  std::vector<std::string>& not_enforced,
                                  int64_t most_repeats = limits::kMaxGrammarRepeats) {
  WorkBudget budget;
  return AddArguments(schema, rules, not_enforced, budget, most_repeats);
}

// The same for one argument, which may be of any type.
grammar::Expr AddArgument(const nlohmann::ordered_json& schema, grammar::Rules& rules,
                          std::vector<std::string>& not_enforced, WorkBudget& budget,
                          int64_t most_repeats = limits::kMaxGrammarRepeats);

// Any JSON object.
grammar::Expr AddJsonObject(grammar::Rules& rules);

}  // namespace coppice
