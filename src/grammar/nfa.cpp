#include "grammar/nfa.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

constexpr int64_t kMaxInlinedRepeats = 64;

class Builder {
 public:
  Builder(const Rules& rules, const std::vector<uint8_t>& inlined, WorkBudget& budget)
      : rules_(rules), inlined_(inlined), budget_(budget) {}

  Nfa Build(const Expr& expr) {
    nfa_.start = Node();
    nfa_.end = Add(expr, nfa_.start);
    return std::move(nfa_);
  }

 private:
  uint32_t Node() {
    budget_.Spend();
    if (nfa_.nodes.size() >= limits::kMaxGrammarStates)
      throw Error("the grammar is too large: a rule, written out, has more than {} states",
                  limits::kMaxGrammarStates);
    nfa_.nodes.emplace_back();
    return static_cast<uint32_t>(nfa_.nodes.size()) - 1;
  }

  void AddEdge(uint32_t from, const Nfa::Edge& edge) {
    budget_.Spend();
    if (nfa_.edges.size() >= limits::kMaxGrammarEdges)
      throw Error("the grammar is too large: a rule, written out, has more than {} edges",
                  limits::kMaxGrammarEdges);
    if (edge.kind != Nfa::Edge::Kind::kEmpty) ++solid_;
    const auto number = static_cast<uint32_t>(nfa_.edges.size());
    Nfa::Node& node = nfa_.nodes[from];
    (node.first == Nfa::kNone ? node.first : nfa_.edges[node.last].next) = number;
    node.last = number;
    nfa_.edges.push_back(edge);
  }
  void Empty(uint32_t from, uint32_t to) { AddEdge(from, {.to = to}); }
  void Bytes(uint32_t from, uint32_t first, uint32_t last, uint32_t to) {
    AddEdge(from, {.kind = Nfa::Edge::Kind::kBytes,
                   .first = static_cast<uint8_t>(first),
                   .last = static_cast<uint8_t>(last),
                   .to = to});
  }

  // Adds what `expr` stands for behind `from`, and returns the node after it.
  uint32_t Add(const Expr& expr, uint32_t from) {
    budget_.Spend();
    switch (expr.kind) {
      case Expr::Kind::kText:
        return AddText(expr.text, from);
      case Expr::Kind::kChars:
        return AddChars(expr.chars, from);
      case Expr::Kind::kRule:
        return AddRule(expr.rule, from);
      case Expr::Kind::kSequence:
        for (const Expr& part : expr.parts) from = Add(part, from);
        return from;
      case Expr::Kind::kChoice:
        return AddChoice(expr.parts, from);
      case Expr::Kind::kRepeat:
        return AddRepeat(expr, from);
      case Expr::Kind::kUntil:
      case Expr::Kind::kWithout:
        return AddSearch(expr, from);
    }
    return from;
  }

  uint32_t AddText(const std::string& text, uint32_t from) {
    for (const char c : text) {
      const uint32_t to = Node();
      Bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
      from = to;
    }
    return from;
  }

  uint32_t AddRule(int32_t rule, uint32_t from) {
    const auto index = static_cast<size_t>(rule);
    if (inlined_[index] != 0 && !calls_) return Add(rules_.rules[index], from);
    const uint32_t to = Node();
    AddEdge(from, {.kind = Nfa::Edge::Kind::kCall, .rule = static_cast<uint32_t>(rule), .to = to});
    return to;
  }

  uint32_t AddChoice(const std::vector<Expr>& parts, uint32_t from) {
    const uint32_t to = Node();
    for (const Expr& part : parts) {
      const uint32_t begin = Node();
      Empty(from, begin);
      Empty(Add(part, begin), to);
    }
    return to;
  }

  uint32_t AddRepeat(const Expr& repeat, uint32_t from) {
    const Expr& part = repeat.parts.front();
    const bool many = std::max(repeat.least, repeat.most) > kMaxInlinedRepeats;
    const bool called = std::exchange(calls_, calls_ || many);
    const uint32_t to = AddRepeats(repeat, part, from);
    calls_ = called;
    return to;
  }

  // A round without an edge of bytes or of a call stands for nothing, and so do all further ones.
  uint32_t AddRepeats(const Expr& repeat, const Expr& part, uint32_t from) {
    for (int64_t i = 0; i < repeat.least; ++i) {
      const size_t before = solid_;
      from = Add(part, from);
      if (solid_ == before) return from;
    }
    if (repeat.most == kNoLimit) {
      const uint32_t loop = Node();
      Empty(from, loop);
      Empty(Add(part, loop), loop);
      return loop;
    }
    if (repeat.most == repeat.least) return from;
    const uint32_t to = Node();
    for (int64_t i = repeat.least; i < repeat.most; ++i) {
      Empty(from, to);
      const size_t before = solid_;
      from = Add(part, from);
      if (solid_ == before) break;
    }
    Empty(from, to);
    return to;
  }

  // Knuth, Morris and Pratt's automaton: node i has seen the first i bytes of the text.
  uint32_t AddSearch(const Expr& search, uint32_t from) {
    const std::string& text = search.text;
    const size_t size = text.size();
    const bool finds = search.kind == Expr::Kind::kUntil;
    if (size == 0) return from;
    std::vector<uint32_t> nodes{Node()};
    Empty(from, nodes[0]);
    for (size_t i = 1; i < size + (finds ? 1 : 0); ++i) nodes.push_back(Node());
    std::vector<std::array<uint32_t, 256>> rows(size);  // where each byte leads from a node
    uint32_t restart = 0;  // the node of the longest proper suffix of what was seen
    for (size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (i > 0) {
        rows[i] = rows[restart];
        restart = rows[restart][byte];
      }
      rows[i][byte] = static_cast<uint32_t>(i) + 1;
      for (uint32_t first = 0, last = 0; first < 256; first = last + 1) {
        last = first;
        while (last < 255 && rows[i][last + 1] == rows[i][first]) ++last;
        if (rows[i][first] < nodes.size()) Bytes(nodes[i], first, last, nodes[rows[i][first]]);
      }
    }
    if (finds) return nodes[size];
    const uint32_t to = Node();
    for (const uint32_t node : nodes) Empty(node, to);
    return to;
  }

  // The UTF-8 of a set of characters: ranges of the code points that have the same number of bytes, cut where
  // their continuation bytes do not span all of 80 to BF.
  uint32_t AddChars(const CharSet& set, uint32_t from) {
    const uint32_t to = Node();
    for (const CharRange& range : set) {
      char32_t first = range.first;
      for (const char32_t last : {0x7Fu, 0x7FFu, 0xFFFFu, 0x10FFFFu}) {
        if (first > range.last) break;
        if (first <= last) {
          const int bytes = last == 0x7F ? 1 : last == 0x7FF ? 2 : last == 0xFFFF ? 3 : 4;
          AddUtf8(first, std::min<char32_t>(range.last, last), bytes, bytes, from, to);
          first = last + 1;
        }
      }
    }
    return to;
  }

  // Characters whose last `bytes` bytes (of `length`) run from first to last.
  void AddUtf8(char32_t first, char32_t last, int bytes, int length, uint32_t from, uint32_t to) {
    const int shift = 6 * (bytes - 1);
    const auto lead = [&](char32_t c) -> uint32_t {
      if (length == 1) return c;
      if (bytes < length) return 0x80 | ((c >> shift) & 0x3F);
      return ((0xF00u >> length) & 0xFF) | (c >> shift);
    };
    if (bytes == 1) {
      Bytes(from, lead(first), lead(last), to);
      return;
    }
    const char32_t mask = (char32_t{1} << shift) - 1;
    if ((first & ~mask) != (last & ~mask)) {  // cut where the first byte changes
      if ((first & mask) != 0) {
        AddUtf8(first, first | mask, bytes, length, from, to);
        AddUtf8((first | mask) + 1, last, bytes, length, from, to);
        return;
      }
      if ((last & mask) != mask) {
        AddUtf8(first, (last & ~mask) - 1, bytes, length, from, to);
        AddUtf8(last & ~mask, last, bytes, length, from, to);
        return;
      }
    }
    const uint32_t next = Node();
    Bytes(from, lead(first), lead(last), next);
    AddUtf8(first & mask, last & mask, bytes - 1, length, next, to);
  }

  const Rules& rules_;
  const std::vector<uint8_t>& inlined_;
  WorkBudget& budget_;
  size_t solid_ = 0;    // edges that are not empty
  bool calls_ = false;  // within a long repetition, where a call is smaller than its rule put in place
  Nfa nfa_;
};

}  // namespace

Nfa BuildNfa(const Rules& rules, const Expr& expr, const std::vector<uint8_t>& inlined, WorkBudget& budget) {
  return Builder(rules, inlined, budget).Build(expr);
}

}  // namespace coppice
