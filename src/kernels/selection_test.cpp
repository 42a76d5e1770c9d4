#include "kernels/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;

TensorView View(const std::vector<float>& s) {
  return {s.data(), DType::kF32, 1, static_cast<int64_t>(s.size())};
}
Rows Top(const std::vector<float>& s, int64_t k) { return SelectTopK(View(s), k).ToRows(); }
Rows Smallest(const std::vector<float>& s, double eta) {
  return SelectSmallestSetWithMass(View(s), eta).ToRows();
}

// Scores on a coarse grid, so that most have ties.
std::vector<float> Coarse(size_t n, uint32_t seed, float nans = 0) {
  std::mt19937 generator(seed);
  std::vector<float> s(n);
  for (float& v : s) {
    v = static_cast<float>(generator() % 16) / 4;
    if (static_cast<float>(generator() % 1000) < nans * 1000) v = kNan;
  }
  return s;
}

Rows NaiveRank(const std::vector<float>& s) {
  Rows rows(s.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int32_t a, int32_t b) { return std::isnan(s[b]) ? !std::isnan(s[a]) : s[a] > s[b]; });
  return rows;
}

TEST(TopK, TiesGoToTheEarlierRow) {
  const std::vector<float> s = {1, 3, 2, 3, 2, 3};
  EXPECT_EQ(Top(s, 1), (Rows{1}));
  EXPECT_EQ(Top(s, 2), (Rows{1, 3}));
  EXPECT_EQ(Top(s, 4), (Rows{1, 2, 3, 5}));
  EXPECT_EQ(Top({5, 5, 5, 5}, 2), (Rows{0, 1}));
  EXPECT_EQ(Top({-0.0f, 0.0f, -0.0f}, 1), (Rows{0}));  // -0 equals 0
}

TEST(TopK, CountsOutsideTheRange) {
  const std::vector<float> s = {1, 2, 3};
  EXPECT_TRUE(SelectTopK(View(s), 3).IsAll());
  EXPECT_TRUE(SelectTopK(View(s), 100).IsAll());
  EXPECT_EQ(SelectTopK(View(s), 0).size(), 0);
  EXPECT_EQ(SelectTopK(View(s), -1).size(), 0);
  EXPECT_EQ(SelectTopK({}, 5).universe(), 0);
}

TEST(TopK, InfinitiesAndNan) {
  const std::vector<float> s = {kNan, -kInf, 0, kInf, -kNan, -5};
  EXPECT_EQ(Top(s, 1), (Rows{3}));
  EXPECT_EQ(Top(s, 4), (Rows{1, 2, 3, 5}));
  EXPECT_EQ(Top(s, 5), (Rows{0, 1, 2, 3, 5}));  // NaNs of either sign tie below all numbers
  EXPECT_EQ(Top({kNan, kNan, kNan}, 2), (Rows{0, 1}));
}

TEST(TopK, MatchesAStableSort) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> s = Coarse(1 + seed * 7, seed, seed % 2 == 0 ? 0.1f : 0);
    const Rows rank = NaiveRank(s);
    for (int64_t k = 0; k <= static_cast<int64_t>(s.size()); k += 1 + seed / 4) {
      Rows expected(rank.begin(), rank.begin() + k);
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(Top(s, k), expected) << seed << " " << k;
    }
  }
}

TEST(SmallestSetWithMass, WorkedExamples) {  // FTP, eq. 2 and 3
  const std::vector<float> s = {5, 1, 3, 3, 8, 2, 2, 6};
  EXPECT_EQ(Smallest(s, .5), (Rows{0, 4, 7}));
  EXPECT_EQ(Smallest(s, .7), (Rows{0, 2, 4, 7}));  // row 2 before row 3, which has an equal score
  EXPECT_EQ(Smallest(s, .8), (Rows{0, 2, 3, 4, 7}));
  EXPECT_EQ(Smallest(s, .9), (Rows{0, 2, 3, 4, 5, 7}));  // 27 >= 27: the sum may equal the target
  EXPECT_TRUE(SelectSmallestSetWithMass(View(s), 1).IsAll());
  EXPECT_EQ(Smallest({4, 3, 2, 1}, .7), (Rows{0, 1}));
  EXPECT_EQ(Smallest({4, 3, 2, 1}, .9), (Rows{0, 1, 2}));
}

TEST(SmallestSetWithMass, EdgesOfEta) {
  const std::vector<float> s = {1, 0, 0, 0};  // eta 1 returns all rows, although one row has all the mass
  EXPECT_TRUE(SelectSmallestSetWithMass(View(s), 1).IsAll());
  EXPECT_TRUE(SelectSmallestSetWithMass(View(s), 2).IsAll());
  EXPECT_TRUE(SelectSmallestSetWithMass(View(s), std::nan("")).IsAll());
  EXPECT_EQ(Smallest(s, .999), (Rows{0}));
  EXPECT_EQ(Smallest(s, 0), (Rows{0}));  // at least one row
  EXPECT_EQ(Smallest(s, -1), (Rows{0}));
  EXPECT_EQ(SelectSmallestSetWithMass({}, .5).universe(), 0);
}

TEST(SmallestSetWithMass, ScoresWithoutMassKeepAll) {
  for (const std::vector<float>& s : std::vector<std::vector<float>>{
           {0, 0, 0}, {-1, -2, -3}, {1, -1, 0}, {kNan, kNan}, {-kInf, 5}, {kInf, -kInf}}) {
    EXPECT_TRUE(SelectSmallestSetWithMass(View(s), .5).IsAll());
  }
}

TEST(SmallestSetWithMass, NanCountsAsNothingAndInfinityAsEverything) {
  EXPECT_EQ(Smallest({kNan, 4, 3, 2, 1}, .7), (Rows{1, 2}));
  EXPECT_EQ(Smallest({1, kInf, 2}, .9), (Rows{1}));
  // The first prefix sum is 10, the total 8: prefix sums may fall.
  EXPECT_EQ(Smallest({10, 6, -4, -4}, .5), (Rows{0}));
}

TEST(SmallestSetWithMass, IsSmallestAndGrowsWithEta) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const std::vector<float> s = Coarse(2 + seed * 5, seed);
    const Rows rank = NaiveRank(s);
    const double total = std::accumulate(s.begin(), s.end(), 0.0);  // multiples of 1/4: exact in any order
    if (total == 0) continue;
    size_t last = 0;
    for (double eta : {.05, .3, .5, .75, .93, .999}) {
      size_t k = 0;
      double sum = 0;
      do sum += s[rank[k++]];
      while (sum < eta * total);
      Rows expected(rank.begin(), rank.begin() + static_cast<int64_t>(k));
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(Smallest(s, eta), expected) << seed << " " << eta;
      ASSERT_GE(k, last);
      last = k;
    }
  }
}

TEST(Selection, WantsOneRowOfFp32) {
  const std::vector<float> s(8, 1.0f);
  EXPECT_THROW(SelectTopK({s.data(), DType::kF32, 2, 4}, 1), CheckFailure);
  EXPECT_THROW(SelectSmallestSetWithMass({s.data(), DType::kF16, 1, 4}, .5), CheckFailure);
}

}  // namespace
}  // namespace coppice
