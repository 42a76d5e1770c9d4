// The first step of compiling a rule: an automaton with empty edges (Thompson's construction).
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/rules.h"
#include "grammar/work_budget.h"

namespace coppice {

struct Nfa {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kBytes, kCall };
    Kind kind = Kind::kEmpty;
    uint8_t first = 0;  // of kBytes, inclusive
    uint8_t last = 0;
    uint32_t rule = 0;  // of kCall
    uint32_t to = 0;
    uint32_t next = kNone;  // of the same node
  };
  struct Node {
    uint32_t first = kNone;  // edge
    uint32_t last = kNone;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  uint32_t start = 0;
  uint32_t end = 0;

  template <typename Visit>
  void ForEachEdge(uint32_t node, const Visit& visit) const {
    for (uint32_t e = nodes[node].first; e != kNone; e = edges[e].next) visit(edges[e]);
  }
};

// `inlined`: of each rule, whether it is put in place instead of being called; such rules must not be
// recursive. Nodes, edges and rounds of repetitions are spent from `budget`. Throws Error if it would have
// more than limits::kMaxGrammarStates nodes or limits::kMaxGrammarEdges edges.
Nfa BuildNfa(const grammar::Rules& rules, const grammar::Expr& expr, const std::vector<uint8_t>& inlined,
             WorkBudget& budget);

}  // namespace coppice
