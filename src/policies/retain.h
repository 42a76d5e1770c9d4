// What the methods that evict keys and values share: budgets, and the choice of the rows that stay.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "policies/policy.h"
#include "policies/spec.h"

namespace coppice {

// A number of tokens as a user writes it: a share of the prompt up to 1, a count above.
struct TokenBudget {
  double value = 0;

  bool IsShare() const { return value <= 1; }
  // Rounded down, as the methods' code does.
  int64_t Of(int64_t tokens) const {
    return static_cast<int64_t>(IsShare() ? value * static_cast<double>(tokens) : value);
  }
};

// Reads one. Throws Error for what SpecReader::Number refuses, and for a count that is not whole.
TokenBudget ReadBudget(SpecReader& read, std::string_view method, std::string_view key, double fallback);

struct RetainLimits {
  int64_t budget = 0;  // rows to keep
  int64_t recent = 0;  // of these, the last so many; the last row stays whatever this says
};

// Per list of scores [lists][rows], the rows that stay: the pinned ones (CacheScene::pinned: none, one list
// for all, or one per list), the recent ones, and the best of the others by (score descending, row
// ascending), a NaN last. All sets have the same size: the budget, or more where some list has more rows that
// must stay, and at most all rows. O(lists * rows).
std::vector<TokenSet> RetainBest(const std::vector<std::vector<float>>& scores,
                                 const std::vector<TokenSet>& pinned, const RetainLimits& limits,
                                 Backend& be);

}  // namespace coppice
