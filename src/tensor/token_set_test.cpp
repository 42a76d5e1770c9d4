#include "tensor/token_set.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;

TEST(TokenSet, AllAndNone) {
  const TokenSet all = TokenSet::All(3);
  EXPECT_TRUE(all.IsAll());
  EXPECT_EQ(all.size(), 3);
  EXPECT_EQ(all.ToRows(), (Rows{0, 1, 2}));
  EXPECT_THROW(all.rows(), CheckFailure);
  const TokenSet none = TokenSet::None(3);
  EXPECT_FALSE(none.IsAll());
  EXPECT_EQ(none.size(), 0);
  EXPECT_TRUE(none.rows().empty());
  EXPECT_FALSE(none.Contains(0));
  EXPECT_NE(all, none);
}

TEST(TokenSet, TheFullSetHasOneForm) {
  EXPECT_TRUE(TokenSet::Of({2, 0, 1}, 3).IsAll());
  EXPECT_TRUE(TokenSet::Range(0, 3, 3).IsAll());
  EXPECT_TRUE(TokenSet::Range(0, 2, 3).Union(TokenSet::Of({2}, 3)).IsAll());
  EXPECT_EQ(TokenSet::Of({0, 1, 2}, 3), TokenSet::All(3));
  EXPECT_NE(TokenSet::All(3), TokenSet::All(4));
  EXPECT_EQ(TokenSet::None(0), TokenSet::All(0));
}

TEST(TokenSet, OfSortsAndRemovesDuplicates) {
  EXPECT_EQ(TokenSet::Of({7, 2, 7, 0, 2}, 9).ToRows(), (Rows{0, 2, 7}));
  EXPECT_EQ(TokenSet::Of({}, 9), TokenSet::None(9));
  EXPECT_THROW(TokenSet::Of({9}, 9), CheckFailure);
  EXPECT_THROW(TokenSet::Of({-1, 3}, 9), CheckFailure);
  EXPECT_THROW(TokenSet::Of({0}, 0), CheckFailure);
}

TEST(TokenSet, RangeIsCutToTheUniverse) {
  EXPECT_EQ(TokenSet::Range(2, 5, 9).ToRows(), (Rows{2, 3, 4}));
  EXPECT_EQ(TokenSet::Range(-5, 2, 9).ToRows(), (Rows{0, 1}));
  EXPECT_EQ(TokenSet::Range(7, 100, 9).ToRows(), (Rows{7, 8}));
  EXPECT_EQ(TokenSet::Range(5, 2, 9).size(), 0);
  EXPECT_EQ(TokenSet::Range(20, 30, 9).size(), 0);
}

TEST(TokenSet, Contains) {
  const TokenSet set = TokenSet::Of({1, 4}, 6);
  for (int row = -1; row <= 6; ++row) EXPECT_EQ(set.Contains(row), row == 1 || row == 4) << row;
  EXPECT_TRUE(TokenSet::All(6).Contains(5));
  EXPECT_FALSE(TokenSet::All(6).Contains(6));
  EXPECT_FALSE(TokenSet::All(6).Contains(-1));
  EXPECT_FALSE(set.Contains((int64_t{1} << 32) + 1));  // not truncated to 32 bits
}

TEST(TokenSet, IntersectAndUnion) {
  const TokenSet a = TokenSet::Of({0, 2, 4, 6}, 8);
  const TokenSet b = TokenSet::Of({2, 3, 6, 7}, 8);
  const TokenSet all = TokenSet::All(8);
  const TokenSet none = TokenSet::None(8);
  EXPECT_EQ(a.Intersect(b).ToRows(), (Rows{2, 6}));
  EXPECT_EQ(a.Union(b).ToRows(), (Rows{0, 2, 3, 4, 6, 7}));
  for (const TokenSet& set : {a, b, all, none}) {
    EXPECT_EQ(set.Intersect(all), set);
    EXPECT_EQ(all.Intersect(set), set);
    EXPECT_EQ(set.Intersect(none), none);
    EXPECT_EQ(set.Union(none), set);
    EXPECT_EQ(none.Union(set), set);
    EXPECT_EQ(set.Union(all), all);
    EXPECT_EQ(all.Union(set), all);
  }
  EXPECT_THROW(a.Union(TokenSet::All(9)), CheckFailure);
  EXPECT_THROW(a.Intersect(TokenSet::None(7)), CheckFailure);
}

TEST(TokenSet, UnionFirstAndLast) {
  const TokenSet set = TokenSet::Of({4}, 8);
  EXPECT_EQ(set.UnionFirst(2).UnionLast(1).ToRows(), (Rows{0, 1, 4, 7}));
  EXPECT_EQ(set.UnionFirst(0).UnionLast(0), set);
  EXPECT_TRUE(set.UnionFirst(100).IsAll());
  EXPECT_TRUE(set.UnionLast(100).IsAll());
}

TEST(TokenSet, Shift) {
  EXPECT_EQ(TokenSet::Of({0, 2}, 3).Shift(4, 10).ToRows(), (Rows{4, 6}));
  EXPECT_EQ(TokenSet::All(3).Shift(2, 10).ToRows(), (Rows{2, 3, 4}));
  EXPECT_TRUE(TokenSet::All(3).Shift(0, 3).IsAll());
  EXPECT_EQ(TokenSet::Of({5, 6}, 8).Shift(-5, 2), TokenSet::All(2));
  EXPECT_THROW(TokenSet::Of({2}, 3).Shift(1, 3), CheckFailure);
  EXPECT_THROW(TokenSet::Of({2}, 3).Shift(-3, 3), CheckFailure);
}

}  // namespace
}  // namespace coppice
