#include "grammar/automaton.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/nfa.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

constexpr size_t kMaxInlinedSize = 4000;  // nodes of a rule that is put in place
constexpr int kMaxInlinedHeight = 32;     // rules within rules put in place

[[noreturn]] void TooLarge() { throw Error("the grammar is too large once its rules are compiled"); }

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

// Makes the automaton of one rule deterministic (the subset construction), with calls as further symbols.
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, uint32_t rule, Automaton& out, size_t& work)
      : nfa_(nfa), rule_(rule), out_(out), work_(work), mark_(nfa.nodes.size(), 0) {}

  void Run() {
    out_.starts[rule_] = StateOf({nfa_.start});
    for (size_t i = 0; i < pending_.size(); ++i) Expand(pending_[i].first, pending_[i].second);
  }

 private:
  using Nodes = std::vector<uint32_t>;
  struct Cut {
    uint32_t at = 0;  // a byte
    uint32_t to = 0;
    bool begins = false;
  };

  void Spend(size_t steps) {
    work_ += steps;
    if (work_ > limits::kMaxGrammarWork) TooLarge();
  }

  void Close(Nodes& nodes) {
    ++stamp_;
    size_t kept = 0;
    for (const uint32_t node : nodes) {
      if (std::exchange(mark_[node], stamp_) != stamp_) nodes[kept++] = node;
    }
    nodes.resize(kept);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const Nfa::Edge& edge : nfa_.nodes[nodes[i]]) {
        if (edge.kind == Nfa::Edge::Kind::kEmpty && std::exchange(mark_[edge.to], stamp_) != stamp_)
          nodes.push_back(edge.to);
      }
      Spend(1 + nfa_.nodes[nodes[i]].size());
    }
    std::ranges::sort(nodes);
  }

  uint32_t StateOf(Nodes nodes) {
    Close(nodes);
    const auto [found, is_new] =
        numbers_.emplace(std::move(nodes), static_cast<uint32_t>(out_.states.size()));
    if (!is_new) return found->second;
    if (out_.states.size() >= limits::kMaxGrammarStates) TooLarge();
    const bool accepts = std::ranges::binary_search(found->first, nfa_.end);
    out_.states.push_back({.rule = rule_, .accepts = accepts});
    pending_.push_back({found->second, &found->first});
    return found->second;
  }

  void Expand(uint32_t state, const Nodes* nodes) {
    std::vector<Cut> cuts;
    std::map<uint32_t, Nodes> calls;
    for (const uint32_t node : *nodes) {
      for (const Nfa::Edge& edge : nfa_.nodes[node]) {
        if (edge.kind == Nfa::Edge::Kind::kCall) calls[edge.rule].push_back(edge.to);
        if (edge.kind != Nfa::Edge::Kind::kBytes) continue;
        cuts.push_back({edge.first, edge.to, true});
        cuts.push_back({edge.last + 1u, edge.to, false});
      }
    }
    std::vector<Automaton::Bytes> bytes = ExpandBytes(cuts);
    std::vector<Automaton::Call> targets;
    for (auto& [rule, to] : calls) targets.push_back({rule, StateOf(std::move(to))});
    Automaton::State& made = out_.states[state];
    made.bytes_begin = static_cast<uint32_t>(out_.bytes.size());
    out_.bytes.insert(out_.bytes.end(), bytes.begin(), bytes.end());
    made.bytes_end = static_cast<uint32_t>(out_.bytes.size());
    made.calls_begin = static_cast<uint32_t>(out_.calls.size());
    out_.calls.insert(out_.calls.end(), targets.begin(), targets.end());
    made.calls_end = static_cast<uint32_t>(out_.calls.size());
  }

  // Goes through the bytes where a range begins or ends, with the targets of the ranges that are open.
  std::vector<Automaton::Bytes> ExpandBytes(std::vector<Cut>& cuts) {
    std::ranges::sort(cuts, {}, &Cut::at);
    std::vector<Automaton::Bytes> bytes;
    std::map<uint32_t, int> open;
    for (size_t i = 0; i < cuts.size();) {
      const uint32_t at = cuts[i].at;
      for (; i < cuts.size() && cuts[i].at == at; ++i) {
        int& count = open[cuts[i].to];
        count += cuts[i].begins ? 1 : -1;
        if (count == 0) open.erase(cuts[i].to);
      }
      Spend(open.size() + 1);
      if (open.empty()) continue;
      Nodes nodes;
      for (const auto& [to, count] : open) nodes.push_back(to);
      const uint32_t state = StateOf(std::move(nodes));
      const auto last = static_cast<uint8_t>(cuts[i].at - 1);
      if (!bytes.empty() && bytes.back().to == state && bytes.back().last + 1u == at) {
        bytes.back().last = last;
      } else {
        bytes.push_back({static_cast<uint8_t>(at), last, state});
      }
    }
    return bytes;
  }

  const Nfa& nfa_;
  const uint32_t rule_;
  Automaton& out_;
  size_t& work_;
  std::vector<uint32_t> mark_;
  uint32_t stamp_ = 0;
  std::map<Nodes, uint32_t> numbers_;
  std::vector<std::pair<uint32_t, const Nodes*>> pending_;
};

// A rule is nullable if its first state leads to an accepting one by calls of nullable rules alone.
void FindNullable(Automaton& automaton) {
  size_t work = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = automaton.starts.size(); rule-- > 0;) {
      if (automaton.nullable[rule] != 0) continue;
      if (++work > limits::kMaxGrammarWork) TooLarge();
      std::vector<uint32_t> reached{automaton.starts[rule]};
      for (size_t i = 0; i < reached.size() && automaton.nullable[rule] == 0; ++i) {
        const Automaton::State& state = automaton.states[reached[i]];
        if (state.accepts) automaton.nullable[rule] = 1;
        for (const Automaton::Call& call : automaton.CallsOf(state)) {
          if (automaton.nullable[call.rule] != 0 && std::ranges::find(reached, call.to) == reached.end())
            reached.push_back(call.to);
        }
      }
      changed |= automaton.nullable[rule] != 0;
    }
  }
}

// Removes edges to states from which no text leads to the rule's end, so that no answer gets stuck.
void RemoveDeadEdges(Automaton& a) {
  std::vector<uint8_t> lives(a.states.size(), 0);
  std::vector<uint8_t> rule_lives(a.starts.size(), 0);
  // Backwards, because edges lead to later states as a rule.
  size_t work = 0;
  for (bool changed = true; changed;) {
    changed = false;
    work += a.states.size();
    if (work > limits::kMaxGrammarWork) TooLarge();
    for (size_t i = a.states.size(); i-- > 0;) {
      if (lives[i] != 0) continue;
      const Automaton::State& state = a.states[i];
      const bool goes_on = state.accepts ||
                           std::ranges::any_of(a.BytesOf(state),
                                               [&](const Automaton::Bytes& b) { return lives[b.to] != 0; }) ||
                           std::ranges::any_of(a.CallsOf(state), [&](const Automaton::Call& c) {
                             return lives[c.to] != 0 && rule_lives[c.rule] != 0;
                           });
      if (!goes_on) continue;
      lives[i] = 1;
      changed = true;
      if (a.starts[state.rule] == i) rule_lives[state.rule] = 1;
    }
  }
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

}  // namespace

Automaton Compile(const Rules& rules) {
  const std::vector<uint8_t> inlined = Inliner(rules).Choose();
  Automaton automaton;
  size_t work = 0;
  // The rules that are called, numbered as they are met.
  std::vector<int32_t> called{rules.root};
  std::unordered_map<uint32_t, uint32_t> numbers{{static_cast<uint32_t>(rules.root), 0}};
  for (size_t i = 0; i < called.size(); ++i) {
    Nfa nfa = BuildNfa(
        rules, rules.rules[static_cast<size_t>(called[i])], inlined,
        limits::kMaxGrammarStates - std::min<size_t>(automaton.states.size(), limits::kMaxGrammarStates));
    for (auto& node : nfa.nodes) {
      for (Nfa::Edge& edge : node) {
        if (edge.kind != Nfa::Edge::Kind::kCall) continue;
        const auto [found, is_new] = numbers.emplace(edge.rule, static_cast<uint32_t>(called.size()));
        if (is_new) called.push_back(static_cast<int32_t>(edge.rule));
        edge.rule = found->second;
      }
    }
    automaton.starts.resize(called.size());
    Determinizer(nfa, static_cast<uint32_t>(i), automaton, work).Run();
  }
  automaton.nullable.resize(called.size());
  FindNullable(automaton);
  RemoveDeadEdges(automaton);
  return automaton;
}

}  // namespace coppice
