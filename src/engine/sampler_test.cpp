#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

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

TEST(Sampler, PresenceAndFrequencyCountWhatWasGenerated) {
  const std::vector<float> logits = {3, 2, 1};
  const std::vector<int32_t> history = {0, 0, 1, 0, 1, 0};  // the first two are the prompt's
  const auto best = [&](double presence, double frequency) {
    SamplingOptions options = {
        .temperature = 0, .presence_penalty = presence, .frequency_penalty = frequency};
    return Sampler(options, 2).Sample(logits, history);
  };
  EXPECT_EQ(best(0, 0), 0);
  EXPECT_EQ(best(1.5, 0), 0);  // 1.5, 0.5, 1
  EXPECT_EQ(best(2, 0), 0);    // 1, 0, 1
  EXPECT_EQ(best(0, 0.9), 0);  // both were generated twice: 1.2, 0.2, 1
  EXPECT_EQ(best(0, 1.1), 2);  // 0.8, -0.2, 1
  EXPECT_EQ(best(-2, -2), 0);
  SamplingOptions options = {.temperature = 0, .frequency_penalty = 2};
  EXPECT_EQ(Sampler(options, 6).Sample(logits, history), 0);  // all of it is the prompt
  EXPECT_EQ(Sampler(options, 99).Sample(logits, history), 0);
}

TEST(Sampler, BiasMovesAndBans) {
  const double ban = -std::numeric_limits<double>::infinity();
  const std::vector<float> logits = {3, 2, 1};
  const auto best = [&](std::vector<TokenBias> biases) {
    return Sampler({.temperature = 0, .logit_bias = std::move(biases)}).Sample(logits, {});
  };
  EXPECT_EQ(best({{2, 2.5}}), 2);
  EXPECT_EQ(best({{0, -1.5}}), 1);
  EXPECT_EQ(best({{0, ban}, {1, ban}, {77, 5}}), 2);
  EXPECT_EQ(best({{0, ban}, {0, 5}}), 1);
  EXPECT_THROW(best({{0, ban}, {1, ban}, {2, ban}}), Error);
}

// Without options that change logits, a sampler looks at the best blocks of logits only. A bias of 0 makes it
// look at all of them.
TEST(Sampler, TheBestLogitsDecideAlone) {
  std::mt19937 numbers(1);
  const float inf = std::numeric_limits<float>::infinity();
  for (const size_t vocabulary : {1, 40, 64, 1000, 5000}) {
    for (int trial = 0; trial < 40; ++trial) {
      std::vector<float> logits(vocabulary);
      for (float& v : logits) v = static_cast<float>(numbers() % 50) / 4 - 6;  // with many equal ones
      for (const float odd : {std::nanf(""), inf, -inf}) {
        if (vocabulary > 1) logits[1 + numbers() % (vocabulary - 1)] = odd;
      }
      logits[0] = 1;
      std::vector<int32_t> banned;
      if (vocabulary > 1 && trial % 2 == 0) banned = {1, static_cast<int32_t>(vocabulary - 1)};
      for (const int64_t top_k : {1, 7, 40, 2000}) {
        for (const double temperature : {0.0, 0.9}) {
          SamplingOptions options{.temperature = temperature, .top_k = top_k, .seed = numbers()};
          Sampler best(options);
          options.logit_bias = {{0, 0.0}};
          Sampler all(options);
          for (int i = 0; i < 5; ++i)
            ASSERT_EQ(best.Sample(logits, {}, nullptr, banned), all.Sample(logits, {}, nullptr, banned));
        }
      }
    }
  }
}

TEST(Sampler, TypicalSigmaAndExcludedTopChoices) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto survivors = [&](auto change) {
    SamplingOptions options = Plain();
    change(options);
    std::vector<int32_t> ids;
    for (const auto& [id, count] : Draw(options, logits)) ids.push_back(id);
    return ids;
  };
  using Ids = std::vector<int32_t>;
  // Entropy 1.142 nats; the tokens' information is 0.69, 1.20, 1.90, 3.00: the order is 1, 0, 2, 3.
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.typical_p = 0.2; }), Ids{1});
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.typical_p = 0.6; }), (Ids{0, 1}));
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.typical_p = 0.9; }), (Ids{0, 1, 2}));
  // The logits' standard deviation is 0.860; the others are 0.51, 1.20 and 2.30 below the best.
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_n_sigma = 0.5; }), Ids{0});
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_n_sigma = 1; }), (Ids{0, 1}));
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_n_sigma = 2; }), (Ids{0, 1, 2}));
  EXPECT_EQ(survivors([](SamplingOptions& o) { o.top_n_sigma = 0; }).size(), 4u);
  const auto excluding = [](double probability, double threshold) {
    return [=](SamplingOptions& o) {
      o.xtc_probability = probability;
      o.xtc_threshold = threshold;
    };
  };
  EXPECT_EQ(survivors(excluding(1, 0.1)), (Ids{2, 3}));
  EXPECT_EQ(survivors(excluding(1, 0.2)), (Ids{1, 2, 3}));
  EXPECT_EQ(survivors(excluding(1, 0.4)).size(), 4u);  // one alone is not excluded
  SamplingOptions half = Plain();
  excluding(0.5, 0.1)(half);
  EXPECT_NEAR(Draw(half, logits)[0] / 20000.0, 0.25, 0.012);
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
  refused([](SamplingOptions& o) { o.presence_penalty = 2.1; });
  refused([&](SamplingOptions& o) { o.frequency_penalty = nan; });
  refused([](SamplingOptions& o) { o.typical_p = 0; });
  refused([&](SamplingOptions& o) { o.top_n_sigma = nan; });
  refused([](SamplingOptions& o) { o.xtc_probability = 1.5; });
  refused([](SamplingOptions& o) { o.xtc_threshold = -0.1; });
  refused([&](SamplingOptions& o) { o.logit_bias = {{1, nan}}; });
}

}  // namespace
}  // namespace coppice
