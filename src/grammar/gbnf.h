// GBNF, the grammar format of llama.cpp.
#pragma once

#include <string_view>

#include "grammar/rules.h"
#include "grammar/work_budget.h"

namespace coppice {

// Reads rules `name ::= ...`, of which `root` is the whole answer: "texts", [character classes], `.`, names,
// groups, | and the repetitions * + ? {m} {m,} {m,n}; # begins a comment. Throws Error with the line and what
// is wrong there ("line 2: expected )"); Cancelled if the budget says so.
grammar::Rules ParseGbnf(std::string_view text, WorkBudget& budget);
grammar::Rules ParseGbnf(std::string_view text);

}  // namespace coppice
