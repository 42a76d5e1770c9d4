// A grammar compiled to states over bytes: each rule is a deterministic automaton whose edges are bytes of
// UTF-8 or calls of other rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/rules.h"
#include "grammar/work_budget.h"

namespace coppice {

struct Automaton {
  struct Bytes {
    uint8_t first = 0;
    uint8_t last = 0;  // inclusive
    uint32_t to = 0;   // a state
  };
  struct Call {
    uint32_t rule = 0;
    uint32_t to = 0;  // the state after the rule
  };
  struct State {
    uint32_t bytes_begin = 0;  // in `bytes`
    uint32_t bytes_end = 0;
    uint32_t calls_begin = 0;  // in `calls`
    uint32_t calls_end = 0;
    uint32_t rule = 0;     // to which the state belongs
    bool accepts = false;  // the rule may end here
  };

  std::vector<State> states;
  std::vector<Bytes> bytes;       // of each state: disjoint, ascending
  std::vector<Call> calls;        // of each state: ascending by rule, each once
  std::vector<uint32_t> starts;   // of each rule: its first state
  std::vector<uint8_t> nullable;  // of each rule: whether it can stand for nothing
  uint32_t root = 0;              // a rule

  std::span<const Bytes> BytesOf(const State& state) const {
    return std::span(bytes).subspan(state.bytes_begin, state.bytes_end - state.bytes_begin);
  }
  std::span<const Call> CallsOf(const State& state) const {
    return std::span(calls).subspan(state.calls_begin, state.calls_end - state.calls_begin);
  }
};

// Puts rules that are not recursive into the rules that use them, where that stays small, so that most
// grammars need few calls. Throws Error if the result would be beyond the limits of limits.h, or the work
// beyond the budget; Cancelled if the budget says so.
Automaton Compile(const grammar::Rules& rules, WorkBudget& budget);
Automaton Compile(const grammar::Rules& rules);

}  // namespace coppice
