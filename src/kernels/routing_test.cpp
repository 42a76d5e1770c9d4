#include "kernels/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routed RouteOf(const std::vector<float>& logits, const RouterRule& rule,
               const std::vector<float>& bias = {}) {
  const auto experts = static_cast<int64_t>(logits.size());
  Routed to{std::vector<int32_t>(static_cast<size_t>(rule.used)),
            std::vector<float>(static_cast<size_t>(rule.used))};
  const TensorView of_bias = bias.empty() ? TensorView() : TensorView(bias.data(), DType::kF32, 1, experts);
  RouteRows(TensorView(logits.data(), DType::kF32, 1, experts), of_bias, rule, {to.experts, to.weights});
  return to;
}

// Exponentials 1, 4, 2 and 8 of 15.
std::vector<float> PowersOf2() { return {0, std::log(4.0f), std::log(2.0f), std::log(8.0f)}; }

TEST(RouteRows, ASoftmaxOverAllKeepsProbabilities) {
  const Routed routed = RouteOf(PowersOf2(), {.used = 2, .normalise = false});
  EXPECT_THAT(routed.experts, ElementsAre(1, 3));
  EXPECT_THAT(routed.weights, Pointwise(FloatNear(1e-6f), {4 / 15.0f, 8 / 15.0f}));
  EXPECT_THAT(RouteOf(PowersOf2(), {.used = 2, .scale = 3}).weights,
              Pointwise(FloatNear(1e-6f), {1.0f, 2.0f}));
  EXPECT_THAT(RouteOf(PowersOf2(), {.used = 4}).experts, ElementsAre(0, 1, 2, 3));
}

TEST(RouteRows, ASoftmaxOverTheBest) {
  const Routed routed = RouteOf(PowersOf2(), {RouterKind::kTopKSoftmax, 2, false, 1});
  EXPECT_THAT(routed.experts, ElementsAre(1, 3));
  EXPECT_THAT(routed.weights, Pointwise(FloatNear(1e-6f), {1 / 3.0f, 2 / 3.0f}));
}

// The bias decides who is chosen, and is no part of the weights.
TEST(RouteRows, SigmoidsWithABias) {
  const std::vector<float> logits = {0, std::log(3.0f), 0, -std::log(3.0f)};  // sigmoids 1/2, 3/4, 1/2, 1/4
  const Routed routed = RouteOf(logits, {RouterKind::kSigmoidTopK, 2, false, 1}, {0, -1, 0, 0.5f});
  EXPECT_THAT(routed.experts, ElementsAre(0, 3));
  EXPECT_THAT(routed.weights, Pointwise(FloatNear(1e-6f), {0.5f, 0.25f}));
  const Routed whole = RouteOf(logits, {RouterKind::kSigmoidTopK, 2, true, 1}, {0, -1, 0, 0.5f});
  EXPECT_THAT(whole.weights, Pointwise(FloatNear(1e-6f), {2 / 3.0f, 1 / 3.0f}));
}

TEST(RouteRows, OfEqualExpertsTheFirstAreChosen) {
  EXPECT_THAT(RouteOf({1, 2, 1, 1}, {.used = 2}).experts, ElementsAre(0, 1));
  EXPECT_THAT(RouteOf({-500, 0, -600, -700}, {.used = 3}).experts, ElementsAre(0, 1, 2));
}

TEST(RouteRows, NaNIsNoCrash) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(RouteOf({nan, 1, nan, 2}, {RouterKind::kSigmoidTopK, 2, true, 1}).experts, ElementsAre(1, 3));
  EXPECT_THAT(RouteOf({nan, nan, nan}, {.used = 2}).experts, ElementsAre(0, 1));
}

}  // namespace
}  // namespace coppice
