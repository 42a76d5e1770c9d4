#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace coppice::divergence_test {
namespace {

TEST(PerplexitySum, IsTheExponentialOfTheMean) {
  PerplexitySum sum;
  for (const double p : {0.5, 0.25, 0.125, 0.125}) sum.Add(-std::log(p));
  const Estimate ppl = sum.Perplexity();
  EXPECT_NEAR(ppl.value, std::pow(2.0, 9.0 / 4), 1e-12);
  // Bits 1, 2, 3, 3: mean 2.25, variance 0.6875; the mean's error is sqrt(0.6875 / 3) bits.
  EXPECT_NEAR(ppl.error, ppl.value * std::sqrt(0.6875 / 3) * std::log(2.0), 1e-12);
  EXPECT_EQ(PerplexitySum().Perplexity().value, 1);
}

std::vector<float> LogsOf(std::vector<double> p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x) + 3));  // any constant
  return logits;
}

TEST(DivergenceSum, OfWorkedDistributions) {
  const std::vector<float> a = LogsOf({0.5, 0.25, 0.25});
  const std::vector<float> b = LogsOf({0.25, 0.5, 0.25});
  DivergenceSum sum;
  sum.Add(a, a, 0);
  sum.Add(a, b, 0);  // 0.5 log 2 + 0.25 log 0.5 = 0.25 log 2
  EXPECT_EQ(sum.positions(), 2);
  EXPECT_NEAR(sum.Mean().value, 0.125 * std::log(2.0), 1e-6);
  EXPECT_NEAR(sum.Mean().error, 0.125 * std::log(2.0), 1e-6);
  EXPECT_EQ(sum.Quantile(0), 0);
  EXPECT_NEAR(sum.Quantile(1), 0.25 * std::log(2.0), 1e-6);
  EXPECT_EQ(sum.same_top(), 0.5);
  EXPECT_NEAR(sum.DeltaP(), std::sqrt(0.0625 / 2), 1e-6);
  EXPECT_NEAR(sum.Ratio().value, std::sqrt(2.0), 1e-6);
}

}  // namespace
}  // namespace coppice::divergence_test
