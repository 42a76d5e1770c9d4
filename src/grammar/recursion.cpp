#include "grammar/recursion.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace coppice {

using namespace grammar;  // of expressions

namespace {

// What a rule may be, by where it calls itself.
struct Shapes {
  std::vector<Expr> plain;   // at no end
  std::vector<Expr> before;  // stands before the rule's last part, a call of itself
  std::vector<Expr> behind;  // stands behind its first part, a call of itself
  std::vector<Expr> within;  // stands between two calls of itself
  std::set<size_t> times;    // the rule itself so often, two or more times

  bool recursive() const { return !before.empty() || !behind.empty() || !within.empty() || !times.empty(); }
};

class Rewriter {
 public:
  Rewriter(int32_t rule, WorkBudget& budget) : rule_(rule), budget_(budget) {}

  void Sort(const Expr& expr) {
    budget_.Spend();
    if (expr.kind == Expr::Kind::kChoice) {
      for (const Expr& part : expr.parts) Sort(part);
      return;
    }
    if (expr.kind == Expr::Kind::kRepeat && IsSelf(expr.parts[0]) && SortRepeat(expr)) return;
    std::vector<Expr> parts;
    Flatten(expr, parts);
    if (parts.size() == 1 && parts[0].kind == Expr::Kind::kChoice) return Sort(Expr(std::move(parts[0])));
    if (parts.size() > 1 && std::ranges::all_of(parts, [this](const Expr& part) { return IsSelf(part); })) {
      shapes_.times.insert(parts.size());
      return;
    }
    const bool first = !parts.empty() && IsSelf(parts.front());
    if (first && parts.size() == 1) return;  // the rule itself says nothing
    const bool last = !parts.empty() && IsSelf(parts.back());
    if (last) parts.pop_back();
    if (first) parts.erase(parts.begin());
    auto& shape = first && last ? shapes_.within
                  : first       ? shapes_.behind
                  : last        ? shapes_.before
                                : shapes_.plain;
    shape.push_back(parts.size() == 1 ? std::move(parts[0]) : Sequence(std::move(parts)));
  }

  Shapes& shapes() { return shapes_; }

 private:
  bool IsSelf(const Expr& expr) const { return expr.kind == Expr::Kind::kRule && expr.rule == rule_; }

  // The rule itself, several times: as often as one likes, if twice is among them.
  bool SortRepeat(const Expr& expr) {
    if (expr.least > 2 || (expr.most != kNoLimit && expr.most < 2)) {
      if (expr.least > 1 || expr.most == 0) return false;
      if (expr.least == 0) shapes_.plain.push_back(Sequence({}));
      return true;
    }
    if (expr.least == 0) shapes_.plain.push_back(Sequence({}));
    shapes_.times.insert(2);
    return true;
  }

  void Flatten(const Expr& expr, std::vector<Expr>& parts) {
    budget_.Spend(CountExprs(expr));
    if (expr.kind != Expr::Kind::kSequence) {
      parts.push_back(expr);
      return;
    }
    for (const Expr& part : expr.parts) Flatten(part, parts);
  }

  const int32_t rule_;
  WorkBudget& budget_;
  Shapes shapes_;
};

bool Calls(const Expr& expr, int32_t rule) {
  if (expr.kind == Expr::Kind::kRule && expr.rule == rule) return true;
  for (const Expr& part : expr.parts) {
    if (Calls(part, rule)) return true;
  }
  return false;
}

Expr OneOf(std::vector<Expr> parts) {
  return parts.size() == 1 ? std::move(parts[0]) : Choice(std::move(parts));
}

// What follows one text in a rule's texts, any number of times. `each`: one text; `self`: the rule.
Expr Rest(Shapes& shapes, const Expr& each, const Expr& self) {
  if (shapes.within.empty() && !shapes.times.contains(2)) {
    std::vector<Expr> more;
    for (const size_t times : shapes.times) {
      const auto others = static_cast<int64_t>(times) - 1;
      more.push_back(Repeat(each, others, others));
    }
    return OneOf(std::move(more));
  }
  if (shapes.times.contains(2)) {
    shapes.within.push_back(Sequence({}));  // three and more are then possible, too
  } else {
    for (const size_t times : shapes.times)
      shapes.within.push_back(Sequence(std::vector<Expr>(times - 2, self)));
  }
  return Sequence({OneOf(std::move(shapes.within)), each});
}

}  // namespace

// Of a rule A = plain | before A | A behind | A within A, a text of A is one or more texts of
// before* plain behind* with `within` between them: by induction over how it was derived, since A behind adds
// to the last of them, before A to the first, and A within A joins two such texts. A A A joins three.
void RepeatRecursiveRules(Rules& rules, WorkBudget& budget) {
  const auto count = static_cast<int32_t>(rules.rules.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!Calls(rules.rules[at], i)) continue;
    Rewriter rewriter(i, budget);
    rewriter.Sort(rules.rules[at]);
    Shapes& shapes = rewriter.shapes();
    if (!shapes.recursive() || shapes.plain.empty()) continue;  // without `plain` it stands for nothing
    std::vector<Expr> one;
    if (!shapes.before.empty()) one.push_back(Repeat(OneOf(std::move(shapes.before)), 0));
    one.push_back(OneOf(std::move(shapes.plain)));
    if (!shapes.behind.empty()) one.push_back(Repeat(OneOf(std::move(shapes.behind)), 0));
    Expr text = Sequence(std::move(one));
    if (!shapes.within.empty() || !shapes.times.empty()) {
      const Expr each = Rule(rules.Add(std::move(text)));
      text = Sequence({each, Repeat(Rest(shapes, each, Rule(i)), 0)});
    }
    rules.rules[at] = std::move(text);
  }
}

bool CallThemselves(const Rules& rules, WorkBudget& budget) {
  bool any = false;
  for (size_t i = 0; i < rules.rules.size() && !any; ++i) {
    budget.Spend();
    any = Calls(rules.rules[i], static_cast<int32_t>(i));
  }
  return any;
}

}  // namespace coppice
