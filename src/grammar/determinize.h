// The second step of compiling a rule: its automaton without empty edges, and with at most one edge for a
// byte.
#pragma once

#include <cstdint>

#include "grammar/automaton.h"
#include "grammar/nfa.h"
#include "grammar/work_budget.h"

namespace coppice {

// Adds the states and edges of rule number `rule` to `out`, and its start. Calls in `nfa` name rules by the
// numbers that they have in `out`. Throws Error beyond limits::kMaxGrammarStates or kMaxGrammarEdges, and as
// WorkBudget does.
void AddDeterministic(const Nfa& nfa, uint32_t rule, Automaton& out, WorkBudget& budget);

}  // namespace coppice
