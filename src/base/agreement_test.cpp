#include "base/agreement.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

using Values = std::vector<float>;

TEST(Agreement, SameReversedNone) {
  const Values up = {1, 2, 3, 4, 5};
  const Values down = {9, 7, 5, 3, 1};
  EXPECT_DOUBLE_EQ(KendallTau(up, up), 1);
  EXPECT_DOUBLE_EQ(KendallTau(up, down), -1);
  EXPECT_DOUBLE_EQ(SpearmanRho(up, up), 1);
  EXPECT_DOUBLE_EQ(SpearmanRho(up, down), -1);
  const Values flat = {2, 2, 2, 2, 2};
  EXPECT_EQ(KendallTau(up, flat), 0);
  EXPECT_EQ(SpearmanRho(up, flat), 0);
}

// By hand: for {1, 2, 3, 4} and {2, 1, 4, 3}, 4 pairs agree and 2 do not. Spearman: 1 - 6 * 4 / (4 * 15).
TEST(Agreement, ByHand) {
  const Values a = {1, 2, 3, 4};
  const Values b = {2, 1, 4, 3};
  EXPECT_DOUBLE_EQ(KendallTau(a, b), (4.0 - 2.0) / 6.0);
  EXPECT_DOUBLE_EQ(SpearmanRho(a, b), 1 - 6.0 * 4 / (4 * 15));
}

// From the definitions. The documentation of scipy.stats.kendalltau has the first case.
TEST(Agreement, Ties) {
  const Values a = {12, 2, 1, 12, 2};
  const Values b = {1, 4, 7, 1, 0};
  EXPECT_NEAR(KendallTau(a, b), -0.47140452079103173, 1e-12);
  EXPECT_NEAR(SpearmanRho(a, b), -0.5407380704358752, 1e-12);
}

}  // namespace
}  // namespace coppice
