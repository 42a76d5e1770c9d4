#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace coppice {
namespace {

std::map<int32_t, int> Draw(const SamplingOptions& options, const std::vector<float>& logits,
                            const std::vector<int32_t>& history = {}, int draws = 20000) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.Sample(logits, history)];
  return counts;
}

SamplingOptions Plain() { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1}; }

TEST(Sampler, GreedyTakesTheFirstOfTheBest) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 3, 2, 3}, {}), 1);
}

TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  const std::map<int32_t, int> counts = Draw(Plain(), logits);
  EXPECT_NEAR(counts.at(0) / 20000.0, 1 / 8.0, 0.01);
  EXPECT_NEAR(counts.at(1) / 20000.0, 2 / 8.0, 0.01);
  EXPECT_NEAR(counts.at(2) / 20000.0, 5 / 8.0, 0.012);
}

// What seed 1 has always drawn: an answer follows from its seed.
TEST(Sampler, KeepsItsSequence) {
  Sampler sampler(Plain());
  std::vector<int32_t> drawn;
  for (int i = 0; i < 5; ++i) drawn.push_back(sampler.Sample(std::vector<float>(1000), {}));
  EXPECT_EQ(drawn, (std::vector<int32_t>{566, 745, 971, 444, 444}));
}

TEST(Sampler, TemperatureSharpens) {
  SamplingOptions options = Plain();
  options.temperature = 0.5;  // weights are squared: 1 and 4
  EXPECT_NEAR(Draw(options, {0, std::log(2.0f)}).at(1) / 20000.0, 0.8, 0.012);
}

TEST(Sampler, TopKTopPMinPCutTheTail) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto survivors = [&](auto change) {
    SamplingOptions options = Plain();
    change(options);
    return Draw(options, logits).size();
  };
  EXPECT_EQ(survivors([](SamplingOptions&) {}), 4u);
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_k = 2; }), 2u);
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_p = 0.6; }), 2u);   // 0.5 is not enough, 0.8 is
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_p = 1e-6; }), 1u);  // never none
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.min_p = 0.2; }),
            3u);  // 0.15 / 0.5 passes, 0.05 / 0.5 does not
}

TEST(Sampler, RepeatPenaltyLooksBackOnlySoFar) {
  SamplingOptions options = {.temperature = 0, .repeat_penalty = 2, .repeat_last_n = 2};
  const std::vector<float> logits = {3, 2, -1};
  EXPECT_EQ(Sampler(options).Sample(logits, std::vector<int32_t>{0, 1, 1}), 0);  // 0 is out of sight
  EXPECT_EQ(Sampler(options).Sample(logits, std::vector<int32_t>{1, 0}), 0);     // 1.5 against 1
  options.repeat_last_n = 1;
  EXPECT_EQ(Sampler(options).Sample(logits, std::vector<int32_t>{1, 0}), 1);  // 1.5 against 2
  options.repeat_last_n = -1;
  options.repeat_penalty = 4;
  EXPECT_EQ(Sampler(options).Sample(std::vector<float>{-1, -3}, std::vector<int32_t>{0, 2, 2, 2}),
            1);  // -4 against -3
}

TEST(Sampler, SameSeedSameTokens) {
  const std::vector<float> logits = {0, 0.1f, 0.2f, 0.3f};
  SamplingOptions options = Plain();
  Sampler a(options);
  Sampler b(options);
  options.seed = 2;
  Sampler c(options);
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t token = a.Sample(logits, {});
    EXPECT_EQ(token, b.Sample(logits, {}));
    different += token != c.Sample(logits, {});
  }
  EXPECT_GT(different, 20);
}

TEST(Sampler, IgnoresWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Sampler sampler(Plain());
  EXPECT_EQ(sampler.Sample(std::vector<float>{nan, -inf, 1}, {}), 2);
  EXPECT_THROW(sampler.Sample(std::vector<float>{nan, -inf, inf}, {}), Error);
}

TEST(Sampler, RefusesValuesOutOfRange) {
  const auto refused = [](auto change) {
    SamplingOptions options;
    change(options);
    EXPECT_THROW(Validate(options), Error);
  };
  EXPECT_NO_THROW(Validate({}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused([](SamplingOptions& o) { o.temperature = -1; });
  refused([&](SamplingOptions& o) { o.temperature = nan; });
  refused([](SamplingOptions& o) { o.top_k = -1; });
  refused([](SamplingOptions& o) { o.top_p = 0; });
  refused([&](SamplingOptions& o) { o.top_p = nan; });
  refused([](SamplingOptions& o) { o.min_p = 1.5; });
  refused([](SamplingOptions& o) { o.repeat_penalty = 0; });
  refused([](SamplingOptions& o) { o.repeat_last_n = -2; });
}

}  // namespace
}  // namespace coppice
