// Compiling a grammar and a walk along it, for the targets that read one.
#pragma once

#include <stdlib.h>

#include <memory>
#include <string_view>

#include "base/fnv.h"
#include "base/limits.h"
#include "grammar/automaton.h"
#include "grammar/matcher.h"

namespace coppice {

// Of compiling what `input` says. A few inputs in a hundred would take the whole budget, which is as long as
// a thousand others, so all but one in 256, chosen by what they are, get a part of it.
inline WorkBudget BudgetOf(std::string_view input) {
  return (Fnv1a(input) & 0xFF) == 0 ? WorkBudget() : WorkBudget(limits::kMaxGrammarWork / 100);
}

inline std::shared_ptr<const Automaton> CompiledWithin(WorkBudget budget, const grammar::Rules& rules) {
  return std::make_shared<const Automaton>(Compile(rules, budget));
}

// Every text of a grammar can be ended: from wherever the walk leads, some byte goes on, or the text may end.
inline void WalkAlong(const std::shared_ptr<const Automaton>& automaton) {
  GrammarMatcher matcher(automaton);
  for (int step = 0; step < 20; ++step) {
    matcher.RenewBudget();
    bool goes_on = false;
    for (int byte = 0; byte < 256 && !goes_on; ++byte)
      goes_on = matcher.Push(static_cast<uint8_t>((byte * 37 + step * 11) & 0xFF));
    if (!goes_on && !matcher.can_end()) abort();
    if (!goes_on) return;
  }
}

}  // namespace coppice
