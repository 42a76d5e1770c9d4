#pragma once

#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/matcher.h"

namespace coppice {

// Whether the whole text fits.
inline bool Fits(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  GrammarMatcher matcher(automaton);
  for (const char c : text) {
    matcher.RenewBudget();
    if (!matcher.Push(static_cast<uint8_t>(c))) return false;
  }
  return matcher.can_end();
}

inline std::shared_ptr<const Automaton> Compiled(const grammar::Rules& rules) {
  return std::make_shared<const Automaton>(Compile(rules));
}

inline std::shared_ptr<const Automaton> Compiled(grammar::Expr expr) {
  grammar::Rules rules;
  rules.root = rules.Add(std::move(expr));
  return Compiled(rules);
}

}  // namespace coppice
