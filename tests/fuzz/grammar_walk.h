// A walk along a grammar, for the targets that compile one.
#pragma once

#include <stdlib.h>

#include <memory>

#include "grammar/matcher.h"

namespace coppice {

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
