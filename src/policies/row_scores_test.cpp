#include "policies/row_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tiny_model.h"

namespace coppice {
namespace {

using testing::ElementsAre;

TEST(Widened, ATokenHasTheBestScoreOfItsNeighbours) {
  const std::vector<float> scores = {0, 1, 0, 0, 5, 0, 0, 2};
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(Widened(scores, positions, 0), ElementsAre(0, 1, 0, 0, 5, 0, 0, 2));
  EXPECT_THAT(Widened(scores, positions, 1), ElementsAre(1, 1, 1, 5, 5, 5, 2, 2));
  EXPECT_THAT(Widened(scores, positions, 100), ElementsAre(5, 5, 5, 5, 5, 5, 5, 5));
}

TEST(Widened, NeighboursAreThoseByPosition) {
  // 10 and 20 stand side by side in the stream and far apart in the prompt.
  EXPECT_THAT(Widened(std::vector<float>{1, 9, 3}, std::vector<int32_t>{10, 20, 21}, 2),
              ElementsAre(1, 9, 9));
}

TEST(Widened, IsTheMaximumOverTheWindow) {
  TestRandom random(3);
  std::vector<float> scores;
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 500; ++p) {
    if (random.Uniform() < 0) continue;
    positions.push_back(p);
    scores.push_back(random.Uniform());
  }
  for (const int widen : {1, 3, 16}) {
    const std::vector<float> wide = Widened(scores, positions, widen);
    for (size_t i = 0; i < scores.size(); ++i) {
      float best = scores[i];
      for (size_t j = 0; j < scores.size(); ++j) {
        if (std::abs(positions[i] - positions[j]) <= widen) best = std::max(best, scores[j]);
      }
      EXPECT_EQ(wide[i], best) << i;
    }
  }
}

TEST(Widened, ANanSpreadsNowhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> wide =
      Widened(std::vector<float>{1, nan, 3, nan}, std::vector<int32_t>{0, 1, 2, 9}, 1);
  EXPECT_EQ(wide[0], 1);
  EXPECT_EQ(wide[1], 3);
  EXPECT_EQ(wide[2], 3);
  EXPECT_TRUE(std::isnan(wide[3]));
}

}  // namespace
}  // namespace coppice
