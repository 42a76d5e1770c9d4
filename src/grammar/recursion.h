// Rules that call themselves at an end, as repetitions.
#pragma once

#include "grammar/rules.h"
#include "grammar/work_budget.h"

namespace coppice {

// Writes rules such as `a ::= b | a c | d a | a e a` as `a ::= o (e o)*` with `o ::= d* b c*`, which stands
// for the same texts: Earley's algorithm takes quadratic time for `d a` and cubic time for `a e a`, where a
// repetition takes linear time. Rules that call themselves by way of others, or within a repetition, stay as
// they are.
void RepeatRecursiveRules(grammar::Rules& rules, WorkBudget& budget);
// Whether there are any.
bool CallThemselves(const grammar::Rules& rules, WorkBudget& budget);

}  // namespace coppice
