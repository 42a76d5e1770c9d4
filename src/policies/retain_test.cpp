#include "policies/retain.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "policies/retain_test_support.h"
#include "special_floats.h"
#include "test_files.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using Lists = std::vector<std::vector<float>>;

std::vector<Rows> Best(const Lists& scores, const std::vector<TokenSet>& pinned, const RetainLimits& limits) {
  const std::unique_ptr<Backend> be = MakeBackend("reference", {});
  std::vector<Rows> rows;
  for (const TokenSet& set : RetainBest(scores, pinned, limits, *be)) {
    EXPECT_EQ(set.universe(), static_cast<int64_t>(scores.front().size()));
    rows.push_back(set.ToRows());
  }
  return rows;
}

TEST(RetainBest, ChoosesPerListWithTheRecentOnesForced) {
  EXPECT_EQ(Best({{1, 5, 2, 4, 3, 0, 0}, {9, 0, 8, 0, 7, 0, 0}}, {}, {.budget = 4, .recent = 2}),
            (std::vector<Rows>{{1, 3, 5, 6}, {0, 2, 5, 6}}));
  // A recent row's score neither helps nor hurts.
  EXPECT_EQ(Best({{1, 2, 3, 9, 9}}, {}, {.budget = 3, .recent = 2}), (std::vector<Rows>{{2, 3, 4}}));
  EXPECT_EQ(Best({{9, 2, 3, 1}}, {}, {.budget = 2, .recent = 0}),
            (std::vector<Rows>{{0, 3}}));  // the last row
  EXPECT_EQ(Best({{9, 2, 3, 1}}, {}, {.budget = 0, .recent = 0}), (std::vector<Rows>{{3}}));
  EXPECT_EQ(Best({{9, 2, 3, 1}}, {}, {.budget = 9, .recent = 9}), (std::vector<Rows>{{0, 1, 2, 3}}));
  EXPECT_EQ(Best({{7}}, {}, {.budget = 1, .recent = 1}), (std::vector<Rows>{{0}}));
}

TEST(RetainBest, TiesGoToTheEarlierAndNanRanksLast) {
  EXPECT_EQ(Best({{1, 1, 1, 1, 1, 1}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 1, 5}}));
  EXPECT_EQ(Best({{-0.0f, 0, -0.0f, 0, 0}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 1, 4}}));
  EXPECT_EQ(Best({{kNan, -kInf, kNan, 0, 1, 2}}, {}, {.budget = 3, .recent = 1}),
            (std::vector<Rows>{{3, 4, 5}}));
  EXPECT_EQ(Best({{kNan, -kInf, kNan, 0, 1, 2}}, {}, {.budget = 4, .recent = 1}),
            (std::vector<Rows>{{1, 3, 4, 5}}));
  EXPECT_EQ(Best({{kNan, kNan, kNan, kNan}}, {}, {.budget = 2, .recent = 1}), (std::vector<Rows>{{0, 3}}));
  EXPECT_EQ(Best({{kInf, 3, kInf, 1, kNan}}, {}, {.budget = 2, .recent = 1}), (std::vector<Rows>{{0, 4}}));
}

// To evict a single row, RetainBest searches for it without a selection. The result must be the same.
TEST(RetainBest, TheOneThatLeavesRanksLast) {
  EXPECT_EQ(Best({{3, 1, 1, 2, 0}}, {}, {.budget = 4, .recent = 1}), (std::vector<Rows>{{0, 1, 3, 4}}));
  EXPECT_EQ(Best({{1, 1, 1, 1}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 1, 3}}));
  EXPECT_EQ(Best({{kNan, -kInf, kNan, 0}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 1, 3}}));
  EXPECT_EQ(Best({{-kInf, kNan, 2, 0}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 2, 3}}));
  EXPECT_EQ(Best({{0, -0.0f, 0, 5}}, {}, {.budget = 3, .recent = 1}), (std::vector<Rows>{{0, 1, 3}}));
  EXPECT_EQ(Best({{0, 1, 2, 3}}, {TokenSet::Of({0}, 4)}, {.budget = 3, .recent = 1}),
            (std::vector<Rows>{{0, 2, 3}}));

  Noise noise(1);
  const std::unique_ptr<Backend> be = MakeBackend("reference", {});
  for (int64_t n = 2; n < 40; ++n) {
    std::vector<float> scores = noise.Row(n);
    for (float& s : scores) s = s < 0.2f ? kNan : std::floor(s * 4);
    const int64_t recent = 1 + n / 4;
    const TensorView others(scores.data(), DType::kF32, 1, n - recent);
    const TokenSet expected = be->TopK(others, n - 1 - recent).Shift(0, n).UnionLast(recent);
    EXPECT_EQ(Best({scores}, {}, {.budget = n - 1, .recent = recent}).front(), expected.ToRows()) << n;
  }
}

TEST(RetainBest, PinnedRowsStayAndWinOverTheBudget) {
  const Lists scores = {{1, 5, 2, 4, 3, 0, 0}, {9, 0, 8, 0, 7, 0, 0}};
  const TokenSet none = TokenSet::None(7);
  EXPECT_EQ(Best(scores, {TokenSet::Of({0}, 7)}, {.budget = 4, .recent = 2}),  // one list for all
            (std::vector<Rows>{{0, 1, 5, 6}, {0, 2, 5, 6}}));
  EXPECT_EQ(Best(scores, {TokenSet::Of({2}, 7), TokenSet::Of({3, 6}, 7)}, {.budget = 4, .recent = 2}),
            (std::vector<Rows>{{1, 2, 5, 6}, {0, 3, 5, 6}}));
  // More forced rows in one list than the budget: the other list grows to the same size with its best.
  EXPECT_EQ(Best(scores, {TokenSet::Of({0, 2, 4}, 7), none}, {.budget = 3, .recent = 1}),
            (std::vector<Rows>{{0, 2, 4, 6}, {0, 2, 4, 6}}));
  EXPECT_EQ(Best(scores, {none, TokenSet::Of({1, 3, 5}, 7)}, {.budget = 1, .recent = 1}),
            (std::vector<Rows>{{1, 3, 4, 6}, {1, 3, 5, 6}}));
  EXPECT_EQ(Best(scores, {none, TokenSet::All(7)}, {.budget = 1, .recent = 1}).front(),
            (Rows{0, 1, 2, 3, 4, 5, 6}));
  // One choice for kv heads that pin different rows.
  EXPECT_EQ(Best({scores.front()}, {TokenSet::Of({0}, 7), TokenSet::Of({2}, 7)}, {.budget = 4, .recent = 1}),
            (std::vector<Rows>{{0, 1, 2, 6}}));
}

TEST(RetainBest, RefusesListsThatDoNotFit) {
  EXPECT_THROW(Best({{1, 2}, {1}}, {}, {.budget = 1, .recent = 1}), CheckFailure);
  EXPECT_THROW(Best({{1}, {1}, {1}}, {TokenSet::All(1), TokenSet::All(1)}, {.budget = 1, .recent = 1}),
               CheckFailure);
}

TEST(TokenBudget, SharesUpToOneAndCountsAbove) {
  EXPECT_EQ(TokenBudget{0.2}.Of(1000), 200);
  EXPECT_EQ(TokenBudget{0.2}.Of(1004), 200);  // rounds down
  EXPECT_EQ(TokenBudget{1}.Of(77), 77);
  EXPECT_EQ(TokenBudget{2}.Of(77), 2);
  EXPECT_EQ(TokenBudget{0}.Of(77), 0);

  const auto read = [](const char* text) {
    TokenBudget budget{7};
    BudgetKey("a", budget, "").Read({"m", {{"a", text}}});
    return budget.value;
  };
  EXPECT_EQ(read("0.25"), 0.25);
  EXPECT_EQ(read("300"), 300);
  EXPECT_EQ(ErrorOf([&] { read("1.5"); }),
            "m: a=1.5 is neither a share up to 1 nor a whole number of tokens");
  EXPECT_EQ(ErrorOf([&] { read("-1"); }), "m: a=-1 is not a number from 0 to 16777216");
}

}  // namespace
}  // namespace coppice
