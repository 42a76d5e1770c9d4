#include "policies/row_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "policies/score_sum.h"
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

TEST(WholeSentences, ATokenHasTheBestScoreOfItsSentence) {
  const std::vector<int32_t> sentences = {0, 0, 0, 1, 1, 2};
  EXPECT_THAT(WholeSentences(std::vector<float>{1, 3, 0, 0, 2, 4, 7, 5},
                             std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, sentences),
              ElementsAre(3, 3, 3, 2, 2, 4, 7, 5))
      << "6 and 7 are generated";
  // 0, 3 and 5 have left.
  EXPECT_THAT(WholeSentences(std::vector<float>{1, 3, 2, 9}, std::vector<int32_t>{1, 2, 4, 6}, sentences),
              ElementsAre(3, 3, 2, 9));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> whole =
      WholeSentences(std::vector<float>{nan, 3, nan}, std::vector<int32_t>{0, 1, 3}, sentences);
  EXPECT_EQ(whole[0], 3);
  EXPECT_TRUE(std::isnan(whole[2]));
}

TEST(WholeSentences, AScoreReaches32TokensInALongSentence) {
  for (const int32_t length : {64, 65}) {
    // One sentence in front, one behind.
    std::vector<int32_t> sentences(static_cast<size_t>(length) + 10, 1);
    std::fill_n(sentences.begin(), 5, 0);
    std::fill_n(sentences.rbegin(), 5, 2);
    std::vector<float> scores(sentences.size());
    std::vector<int32_t> positions(sentences.size());
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
    scores[10] = 1;
    const std::vector<float> whole = WholeSentences(scores, positions, sentences);
    for (int32_t p = 0; p < length + 10; ++p) {
      const bool inside = p >= 5 && p < length + 5;
      EXPECT_EQ(whole[static_cast<size_t>(p)], inside && (length == 64 || p <= 42) ? 1 : 0)
          << length << " " << p;
    }
  }
}

TEST(ScoreSum, SumsTheLastLayersByPosition) {
  ScoreSum sum(2);
  const std::vector<int32_t> all = {0, 1, 2, 3};
  EXPECT_THAT(sum.Add(3, std::vector<float>{1, 2, 3, 4}, all), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sum.Add(4, std::vector<float>{10, 0, 0, 10}, all), ElementsAre(11, 2, 3, 14));
  EXPECT_THAT(sum.Add(5, std::vector<float>{1, 1}, std::vector<int32_t>{1, 3}), ElementsAre(1, 11));
  EXPECT_THAT(sum.Add(6, std::vector<float>{1}, std::vector<int32_t>{3}), ElementsAre(2));
  EXPECT_THAT(sum.Add(8, std::vector<float>{5}, std::vector<int32_t>{3}), ElementsAre(5))
      << "without layer 7";
  EXPECT_THAT(sum.Add(8, std::vector<float>{1, 2, 3, 4}, all), ElementsAre(1, 2, 3, 4)) << "another prompt";
}

TEST(RowScores, WhichLayersCount) {
  const RowScores scores{.sum = 3};
  for (int layer = -2; layer < 8; ++layer) {
    EXPECT_EQ(scores.Counts(Phase::kPrefill, layer, 5), layer >= 3 && layer <= 5) << layer;
    EXPECT_EQ(scores.Counts(Phase::kPrefill, layer, 1), layer == 0 || layer == 1) << layer;
    EXPECT_EQ(scores.Counts(Phase::kDecode, layer, 5), layer == 5) << layer;
  }
}

}  // namespace
}  // namespace coppice
