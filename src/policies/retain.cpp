#include "policies/retain.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"

namespace coppice {

Keys BudgetKey(std::string_view name, TokenBudget& budget, std::string_view meaning,
               std::string_view fallback, std::string_view range) {
  return Keys(name, &budget.value, 0, kManyTokens, meaning, fallback, range).Check([&budget] {
    const bool good = budget.IsShare() || budget.value == std::floor(budget.value);
    return good ? "" : "is neither a share up to 1 nor a whole number of tokens";
  });
}

namespace {

// The rows of one list that stay whatever their scores are. A single list for all kv heads keeps every row
// that one of the heads must keep.
TokenSet Forced(const std::vector<TokenSet>& pinned, size_t list, size_t lists, TokenSet recent) {
  if (lists == 1) {
    for (const TokenSet& rows : pinned) recent = recent.Union(rows);
  } else if (!pinned.empty()) {
    COPPICE_CHECK(pinned.size() == 1 || pinned.size() == lists);
    recent = recent.Union(pinned[pinned.size() == 1 ? 0 : list]);
  }
  return recent;
}

// The row outside `forced` that ranks last, or -1.
int32_t Worst(const std::vector<float>& scores, const TokenSet& forced) {
  const std::span<const int32_t> skip = forced.rows();
  size_t next = 0;
  int32_t worst = -1;
  for (int32_t row = 0; row < static_cast<int32_t>(scores.size()); ++row) {
    if (next < skip.size() && skip[next] == row) {
      ++next;
      continue;
    }
    const float score = scores[static_cast<size_t>(row)];
    const float least = worst < 0 ? score : scores[static_cast<size_t>(worst)];
    // A NaN is the worst score. Of equal scores the later row is worse.
    if (std::isnan(least) ? std::isnan(score) : !(score > least)) worst = row;
  }
  return worst;
}

// `forced` and the best of the other rows, `size` rows in all.
TokenSet WithBest(const std::vector<float>& scores, const TokenSet& forced, int64_t size, Backend& be) {
  const auto rows = static_cast<int64_t>(scores.size());
  if (size == rows) return TokenSet::All(rows);
  if (size == rows - 1) {  // every step of decode: finding the one worst row is cheaper than a selection
    const int32_t worst = Worst(scores, forced);
    return TokenSet::Range(0, worst, rows).Union(TokenSet::Range(worst + 1, rows, rows));
  }
  const std::vector<int32_t> stay = forced.ToRows();
  std::vector<int32_t> others;
  std::vector<float> score;
  for (int32_t row = 0; row < static_cast<int32_t>(rows); ++row) {
    const size_t seen = static_cast<size_t>(row) - others.size();  // forced rows below this one
    if (seen < stay.size() && stay[seen] == row) continue;
    others.push_back(row);
    score.push_back(scores[static_cast<size_t>(row)]);
  }
  const TensorView ranked(score.data(), DType::kF32, 1, static_cast<int64_t>(score.size()));
  std::vector<int32_t> best = be.TopK(ranked, size - forced.size()).ToRows();
  for (int32_t& i : best) i = others[static_cast<size_t>(i)];
  return TokenSet::Of(std::move(best), rows).Union(forced);
}

}  // namespace

std::vector<TokenSet> RetainBest(const std::vector<std::vector<float>>& scores,
                                 const std::vector<TokenSet>& pinned, const RetainLimits& limits,
                                 Backend& be) {
  COPPICE_CHECK(!scores.empty() && !scores.front().empty());
  const auto rows = static_cast<int64_t>(scores.front().size());
  const TokenSet recent = TokenSet::None(rows).UnionLast(std::clamp<int64_t>(limits.recent, 1, rows));
  std::vector<TokenSet> kept;
  int64_t size = std::min(limits.budget, rows);
  for (size_t list = 0; list < scores.size(); ++list) {
    COPPICE_CHECK(scores[list].size() == scores.front().size());
    kept.push_back(Forced(pinned, list, scores.size(), recent));
    size = std::max(size, kept.back().size());
  }
  for (size_t list = 0; list < scores.size(); ++list) {
    kept[list] = WithBest(scores[list], kept[list], size, be);
  }
  return kept;
}

}  // namespace coppice
