#include "grammar/determinize.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

namespace {

// Makes the automaton of one rule deterministic (the subset construction), with calls as further symbols. A
// state is the set of the nodes that have edges of bytes or calls, or end the rule: the others only lead to
// these.
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, uint32_t rule, Automaton& out, WorkBudget& budget)
      : nfa_(nfa), rule_(rule), out_(out), budget_(budget), mark_(nfa.nodes.size(), 0) {}

  void Run() {
    out_.starts[rule_] = StateOf({nfa_.start});
    for (size_t i = 0; i < pending_.size(); ++i) Expand(pending_[i].first, *pending_[i].second);
  }

 private:
  using Nodes = std::vector<uint32_t>;  // ascending
  // Begins with an address, which who sends a grammar does not know: no grammar is made for sets that
  // collide.
  struct Hash {
    uint64_t begin = 0;
    size_t operator()(const Nodes& nodes) const {
      uint64_t hash = begin;
      for (const uint32_t node : nodes) {
        hash = (hash ^ node) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  using Numbers = std::unordered_map<Nodes, uint32_t, Hash>;
  struct Cut {
    uint32_t at = 0;  // a byte
    uint32_t to = 0;
    int opens = 0;  // ranges that begin here, less those that end
  };
  struct Open {
    uint32_t to = 0;
    int ranges = 0;
  };

  // The nodes of a state: those that `from` reaches by empty edges.
  Nodes Closed(const Nodes& from) {
    ++stamp_;
    reached_.clear();
    const auto reach = [&](uint32_t node) {
      if (std::exchange(mark_[node], stamp_) != stamp_) reached_.push_back(node);
    };
    for (const uint32_t node : from) reach(node);
    Nodes nodes;
    for (size_t i = 0; i < reached_.size(); ++i) {
      uint64_t edges = 0;
      bool solid = reached_[i] == nfa_.end;
      nfa_.ForEachEdge(reached_[i], [&](const Nfa::Edge& edge) {
        ++edges;
        if (edge.kind == Nfa::Edge::Kind::kEmpty) {
          reach(edge.to);
        } else {
          solid = true;
        }
      });
      if (solid) nodes.push_back(reached_[i]);
      budget_.Spend(1 + edges);
    }
    std::ranges::sort(nodes);
    return nodes;
  }

  // Most sets come again and again, so they are looked up before what they reach is.
  uint32_t StateOf(Nodes from) {
    const auto [known, is_new] = known_.emplace(std::move(from), 0);
    if (is_new) known->second = StateOfClosed(Closed(known->first));
    return known->second;
  }

  uint32_t StateOfClosed(Nodes nodes) {
    const auto [found, is_new] =
        numbers_.emplace(std::move(nodes), static_cast<uint32_t>(out_.states.size()));
    if (!is_new) return found->second;
    if (out_.states.size() >= limits::kMaxGrammarStates)
      throw Error("the grammar is too large: compiled, it has more than {} states",
                  limits::kMaxGrammarStates);
    const bool accepts = std::ranges::binary_search(found->first, nfa_.end);
    out_.states.push_back({.rule = rule_, .accepts = accepts});
    pending_.push_back({found->second, &found->first});
    return found->second;
  }

  void Expand(uint32_t state, const Nodes& nodes) {
    cuts_.clear();
    std::map<uint32_t, Nodes> calls;
    for (const uint32_t node : nodes) {
      nfa_.ForEachEdge(node, [&](const Nfa::Edge& edge) {
        if (edge.kind == Nfa::Edge::Kind::kCall) calls[edge.rule].push_back(edge.to);
        if (edge.kind != Nfa::Edge::Kind::kBytes) return;
        cuts_.push_back({edge.first, edge.to, 1});
        cuts_.push_back({edge.last + 1u, edge.to, -1});
      });
    }
    std::vector<Automaton::Bytes> bytes = ExpandBytes();
    std::vector<Automaton::Call> targets;
    for (auto& [rule, to] : calls) {
      budget_.Spend(to.size());
      std::ranges::sort(to);
      targets.push_back({rule, StateOf(std::move(to))});
    }
    Automaton::State& made = out_.states[state];
    if (out_.bytes.size() + out_.calls.size() + bytes.size() + targets.size() > limits::kMaxGrammarEdges)
      throw Error("the grammar is too large: compiled, it has more than {} edges", limits::kMaxGrammarEdges);
    made.bytes_begin = static_cast<uint32_t>(out_.bytes.size());
    out_.bytes.insert(out_.bytes.end(), bytes.begin(), bytes.end());
    made.bytes_end = static_cast<uint32_t>(out_.bytes.size());
    made.calls_begin = static_cast<uint32_t>(out_.calls.size());
    out_.calls.insert(out_.calls.end(), targets.begin(), targets.end());
    made.calls_end = static_cast<uint32_t>(out_.calls.size());
  }

  // Goes through the bytes where a range begins or ends, with the targets of the ranges that are open.
  std::vector<Automaton::Bytes> ExpandBytes() {
    std::ranges::sort(cuts_,
                      [](const Cut& a, const Cut& b) { return a.at != b.at ? a.at < b.at : a.to < b.to; });
    std::vector<Automaton::Bytes> bytes;
    open_.clear();
    for (size_t i = 0; i < cuts_.size();) {
      const uint32_t at = cuts_[i].at;
      i = PassCuts(i);
      budget_.Spend(open_.size() + 1);
      if (open_.empty()) continue;
      Nodes nodes;
      nodes.reserve(open_.size());
      for (const Open& open : open_) nodes.push_back(open.to);
      const uint32_t state = StateOf(std::move(nodes));
      const auto last = static_cast<uint8_t>(cuts_[i].at - 1);
      if (!bytes.empty() && bytes.back().to == state && bytes.back().last + 1u == at) {
        bytes.back().last = last;
      } else {
        bytes.push_back({static_cast<uint8_t>(at), last, state});
      }
    }
    return bytes;
  }

  // Changes open_ by the cuts from `i` on that are at the same byte; returns the first cut behind them.
  size_t PassCuts(size_t i) {
    const uint32_t at = cuts_[i].at;
    merged_.clear();
    size_t old = 0;
    while (i < cuts_.size() && cuts_[i].at == at) {
      Open next{cuts_[i].to, 0};
      for (; old < open_.size() && open_[old].to < next.to; ++old) merged_.push_back(open_[old]);
      if (old < open_.size() && open_[old].to == next.to) next.ranges = open_[old++].ranges;
      for (; i < cuts_.size() && cuts_[i].at == at && cuts_[i].to == next.to; ++i)
        next.ranges += cuts_[i].opens;
      if (next.ranges > 0) merged_.push_back(next);
    }
    merged_.insert(merged_.end(), open_.begin() + static_cast<std::ptrdiff_t>(old), open_.end());
    open_.swap(merged_);
    return i;
  }

  const Nfa& nfa_;
  const uint32_t rule_;
  Automaton& out_;
  WorkBudget& budget_;
  std::vector<uint32_t> mark_;
  uint32_t stamp_ = 0;
  const Hash hash_{reinterpret_cast<uintptr_t>(this)};
  Numbers known_{0, hash_};    // states, by the nodes that edges lead to
  Numbers numbers_{0, hash_};  // the same, by all of their nodes
  std::vector<std::pair<uint32_t, const Nodes*>> pending_;
  // Of one state, kept to save allocations.
  std::vector<uint32_t> reached_;
  std::vector<Cut> cuts_;
  std::vector<Open> open_;  // ascending
  std::vector<Open> merged_;
};

}  // namespace

void AddDeterministic(const Nfa& nfa, uint32_t rule, Automaton& out, WorkBudget& budget) {
  Determinizer(nfa, rule, out, budget).Run();
}

}  // namespace coppice
