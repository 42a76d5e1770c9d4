#include "model/log_probs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace coppice {
namespace {

TEST(LogProbs, AreTheLogarithmOfSoftmax) {
  const std::vector<float> logits = {1.0f, -2.5f, 700.0f, 699.0f, 3.0f};
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - 700);
  const LogSoftmax log_softmax(logits);
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(log_softmax(i), static_cast<double>(logits[static_cast<size_t>(i)]) - 700 - std::log(sum),
                1e-6);
  }
}

TEST(LogProbs, TopIsSortedAndHoldsTheVeryValues) {
  std::vector<float> logits(1000);
  uint32_t state = 3;
  for (float& x : logits)
    x = static_cast<float>((state = state * 1664525 + 1013904223) >> 24);  // many are equal
  const LogSoftmax log_softmax(logits);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (const int top : {0, 1, 2, 20, 1000, 2000}) {
    const TokenLogProbs around = log_softmax.Around(order[1], top);
    EXPECT_EQ(around.token.id, order[1]);
    ASSERT_EQ(around.top.size(), std::min<size_t>(static_cast<size_t>(top), logits.size()));
    for (size_t i = 0; i < around.top.size(); ++i) {
      EXPECT_EQ(around.top[i].id, order[i]);
      EXPECT_EQ(around.top[i].value, log_softmax(order[i]));
    }
    if (top >= 2) {
      EXPECT_EQ(around.top[1].value, around.token.value);
    }
  }
}

}  // namespace
}  // namespace coppice
