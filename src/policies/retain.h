// Shared by the methods that evict keys and values: budgets, and the choice of the rows that stay.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "policies/keys.h"
#include "policies/policy.h"

namespace coppice {

// A number of tokens as a user writes it: up to 1 a share of the prompt, above 1 a count.
struct TokenBudget {
  double value = 0;

  bool IsShare() const { return value <= 1; }
  // Rounded down, as the methods' code does.
  int64_t Of(int64_t tokens) const {
    return static_cast<int64_t>(IsShare() ? value * static_cast<double>(tokens) : value);
  }
};

Keys BudgetKey(std::string_view name, TokenBudget& budget, std::string_view meaning,
               std::string_view fallback = "", std::string_view range = "a share up to 1, or tokens");

struct RetainLimits {
  int64_t budget = 0;  // rows to keep
  int64_t recent = 0;  // the last rows, inside the budget; the last row always stays
};

// For each list of scores [lists][rows] the rows that stay: the pinned rows (CacheScene::pinned: none, one
// list for all, or one per list), the recent rows, and the best of the others by (score descending, row
// ascending), a NaN last. All sets have the same size: the budget, or more where the pinned and recent rows
// of some list exceed it, and at most all rows. O(lists * rows).
std::vector<TokenSet> RetainBest(const std::vector<std::vector<float>>& scores,
                                 const std::vector<TokenSet>& pinned, const RetainLimits& limits,
                                 Backend& be);

}  // namespace coppice
