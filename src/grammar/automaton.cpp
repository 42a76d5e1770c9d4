#include "grammar/automaton.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/determinize.h"
#include "grammar/nfa.h"
#include "grammar/recursion.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

constexpr size_t kMaxInlinedSize = 4000;  // nodes of a rule that is put in place
constexpr int kMaxInlinedHeight = 32;     // rules within rules put in place

// Chooses the rules that are put in place, from those that use no others upwards. Rules on a cycle are never
// reached.
class Inliner {
 public:
  explicit Inliner(const Rules& rules)
      : rules_(rules), sizes_(rules.rules.size()), heights_(rules.rules.size()), flat_(rules.rules.size()) {}

  std::vector<uint8_t> Choose() {
    const size_t count = rules_.rules.size();
    std::vector<std::vector<uint32_t>> users(count);
    std::vector<size_t> waits(count, 0);  // uses of rules that are not flat yet
    std::vector<uint32_t> ready;
    for (size_t i = 0; i < count; ++i) {
      std::vector<uint32_t> used;
      CollectUses(rules_.rules[i], used);
      waits[i] = used.size();
      for (const uint32_t rule : used) users[rule].push_back(static_cast<uint32_t>(i));
      if (used.empty()) ready.push_back(static_cast<uint32_t>(i));
    }
    while (!ready.empty()) {
      const uint32_t rule = ready.back();
      ready.pop_back();
      heights_[rule] = 0;
      sizes_[rule] = SizeOf(rules_.rules[rule], heights_[rule]);
      if (sizes_[rule] > kMaxInlinedSize || heights_[rule] >= kMaxInlinedHeight) continue;
      flat_[rule] = 1;
      for (const uint32_t user : users[rule]) {
        if (--waits[user] == 0) ready.push_back(user);
      }
    }
    return flat_;
  }

 private:
  static void CollectUses(const Expr& expr, std::vector<uint32_t>& used) {
    if (expr.kind == Expr::Kind::kRule) used.push_back(static_cast<uint32_t>(expr.rule));
    for (const Expr& part : expr.parts) CollectUses(part, used);
  }

  // About the nodes that an expression becomes, at most a little above the limit; `height` grows to that of
  // the rules in it, plus one.
  size_t SizeOf(const Expr& expr, int& height) const {
    size_t size = 2 + expr.text.size() + 4 * expr.chars.size();
    if (expr.kind == Expr::Kind::kRule) {
      size += sizes_[static_cast<size_t>(expr.rule)];
      height = std::max(height, heights_[static_cast<size_t>(expr.rule)] + 1);
    }
    for (const Expr& part : expr.parts) size = std::min(size + SizeOf(part, height), 2 * kMaxInlinedSize);
    if (expr.kind == Expr::Kind::kRepeat) {
      const int64_t times = std::max<int64_t>({expr.least + 1, expr.most, 1});
      size *= static_cast<size_t>(std::min<int64_t>(times, 2 * kMaxInlinedSize));
    }
    return std::min(size, 2 * kMaxInlinedSize);
  }

  const Rules& rules_;
  std::vector<size_t> sizes_;
  std::vector<int> heights_;
  std::vector<uint8_t> flat_;
};

// A rule is nullable if its first state leads to an accepting one by calls of nullable rules alone. Each
// state is reached once; a call waits for its rule.
void FindNullable(Automaton& a, WorkBudget& budget) {
  std::vector<uint8_t> reached(a.states.size(), 0);
  std::vector<std::vector<uint32_t>> waiting(a.starts.size());  // of each rule: states behind calls of it
  std::vector<uint32_t> pending;
  const auto reach = [&](uint32_t state) {
    if (std::exchange(reached[state], 1) == 0) pending.push_back(state);
  };
  for (const uint32_t start : a.starts) reach(start);
  while (!pending.empty()) {
    const Automaton::State& state = a.states[pending.back()];
    pending.pop_back();
    const auto calls = a.CallsOf(state);
    budget.Spend(1 + calls.size());
    for (const Automaton::Call& call : calls) {
      if (a.nullable[call.rule] != 0) {
        reach(call.to);
      } else {
        waiting[call.rule].push_back(call.to);
      }
    }
    if (!state.accepts || std::exchange(a.nullable[state.rule], 1) != 0) continue;
    for (const uint32_t to : std::exchange(waiting[state.rule], {})) reach(to);
  }
}

// Of each state, whether some text leads from it to its rule's end; and of each rule, whether one leads
// through it. Backwards from the ends: an edge leads on once its state does and, if it is a call, its rule.
class LiveStates {
 public:
  LiveStates(const Automaton& a, WorkBudget& budget)
      : lives(a.states.size(), 0), rule_lives(a.starts.size(), 0), a_(a) {
    budget.Spend(2 * a.states.size() + 2 * a.bytes.size() + 3 * a.calls.size());
    ListUsers();
    for (uint32_t i = 0; i < a.states.size(); ++i) {
      if (a.states[i].accepts) Live(i);
    }
    while (!pending_.empty()) {
      const uint32_t target = pending_.back();
      pending_.pop_back();
      for (uint32_t i = first_user_[target]; i < first_user_[target + 1]; ++i) {
        const uint32_t edge = users_[i];
        if (--needs_[edge] == 0) Live(owners_[edge]);
      }
    }
  }

  std::vector<uint8_t> lives;
  std::vector<uint8_t> rule_lives;

 private:
  void Live(uint32_t state) {
    if (std::exchange(lives[state], 1) != 0) return;
    pending_.push_back(state);
    const uint32_t rule = a_.states[state].rule;
    if (a_.starts[rule] != state) return;
    rule_lives[rule] = 1;
    pending_.push_back(static_cast<uint32_t>(a_.states.size()) + rule);
  }

  // Edges are numbered: those of bytes, then calls. Targets: states, then rules.
  template <typename Visit>
  void ForEachUse(const Visit& visit) const {
    const auto states = static_cast<uint32_t>(a_.states.size());
    const auto bytes = static_cast<uint32_t>(a_.bytes.size());
    for (uint32_t i = 0; i < bytes; ++i) visit(i, a_.bytes[i].to);
    for (uint32_t i = 0; i < a_.calls.size(); ++i) {
      visit(bytes + i, a_.calls[i].to);
      visit(bytes + i, states + a_.calls[i].rule);
    }
  }

  void ListUsers() {
    owners_.resize(a_.bytes.size() + a_.calls.size());
    needs_.resize(owners_.size(), 0);
    first_user_.resize(a_.states.size() + a_.starts.size() + 2, 0);
    for (uint32_t i = 0; i < a_.states.size(); ++i) {
      const Automaton::State& state = a_.states[i];
      for (uint32_t e = state.bytes_begin; e < state.bytes_end; ++e) owners_[e] = i;
      for (uint32_t e = state.calls_begin; e < state.calls_end; ++e) owners_[a_.bytes.size() + e] = i;
    }
    ForEachUse([&](uint32_t edge, uint32_t target) {
      ++needs_[edge];
      ++first_user_[target + 2];
    });
    for (size_t i = 2; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
    users_.resize(first_user_.back());
    ForEachUse([&](uint32_t edge, uint32_t target) { users_[first_user_[target + 1]++] = edge; });
  }

  const Automaton& a_;
  std::vector<uint32_t> owners_;      // of each edge: its state
  std::vector<uint8_t> needs_;        // of each edge: how many of its targets do not live yet
  std::vector<uint32_t> first_user_;  // of each target, in users_
  std::vector<uint32_t> users_;       // edges
  std::vector<uint32_t> pending_;     // targets that live
};

// Removes edges to states from which no text leads to the rule's end, so that no answer gets stuck.
void RemoveDeadEdges(Automaton& a, WorkBudget& budget) {
  const LiveStates live(a, budget);
  const std::vector<uint8_t>& lives = live.lives;
  const std::vector<uint8_t>& rule_lives = live.rule_lives;
  if (rule_lives[a.root] == 0) throw Error("no text fits the grammar");
  for (Automaton::State& state : a.states) {
    const auto bytes = std::span(a.bytes).subspan(state.bytes_begin, state.bytes_end - state.bytes_begin);
    // Not std::ranges::remove_if: clang 14, which builds the fuzzers, cannot compile GCC's header for it.
    const auto bytes_end = std::remove_if(bytes.begin(), bytes.end(),
                                          [&](const Automaton::Bytes& b) { return lives[b.to] == 0; });
    state.bytes_end -= static_cast<uint32_t>(bytes.end() - bytes_end);
    const auto calls = std::span(a.calls).subspan(state.calls_begin, state.calls_end - state.calls_begin);
    const auto calls_end = std::remove_if(calls.begin(), calls.end(), [&](const Automaton::Call& c) {
      return lives[c.to] == 0 || rule_lives[c.rule] == 0;
    });
    state.calls_end -= static_cast<uint32_t>(calls.end() - calls_end);
  }
}

Automaton CompileRules(const Rules& rules, WorkBudget& budget) {
  const std::vector<uint8_t> inlined = Inliner(rules).Choose();
  Automaton automaton;
  // The rules that are called, numbered as they are met.
  std::vector<int32_t> called{rules.root};
  std::unordered_map<uint32_t, uint32_t> numbers{{static_cast<uint32_t>(rules.root), 0}};
  for (size_t i = 0; i < called.size(); ++i) {
    Nfa nfa = BuildNfa(rules, rules.rules[static_cast<size_t>(called[i])], inlined, budget);
    for (Nfa::Edge& edge : nfa.edges) {
      if (edge.kind != Nfa::Edge::Kind::kCall) continue;
      const auto [found, is_new] = numbers.emplace(edge.rule, static_cast<uint32_t>(called.size()));
      if (is_new) called.push_back(static_cast<int32_t>(edge.rule));
      edge.rule = found->second;
    }
    automaton.starts.resize(called.size());
    AddDeterministic(nfa, static_cast<uint32_t>(i), automaton, budget);
  }
  automaton.nullable.resize(called.size());
  FindNullable(automaton, budget);
  RemoveDeadEdges(automaton, budget);
  automaton.states.shrink_to_fit();  // answers and caches keep it
  automaton.bytes.shrink_to_fit();
  automaton.calls.shrink_to_fit();
  return automaton;
}

}  // namespace

Automaton Compile(const Rules& rules) {
  WorkBudget budget;
  return Compile(rules, budget);
}

Automaton Compile(const Rules& given, WorkBudget& budget) {
  if (!CallThemselves(given, budget)) return CompileRules(given, budget);
  Rules rules = given;
  RepeatRecursiveRules(rules, budget);
  return CompileRules(rules, budget);
}

}  // namespace coppice
