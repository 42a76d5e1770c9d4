#include "eval/tune/held_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "policies/spec.h"

namespace coppice::held_out_test {
namespace {

using testing::HasSubstr;

// Specs "static:keep=K" and "random:keep=K" at K of the work; a sample is right where K is what it needs.
class Half final : public TuneRunner {
 public:
  explicit Half(std::vector<double> needed) : needed_(std::move(needed)) {}
  size_t samples() const override { return needed_.size(); }
  Trial Run(size_t sample, const std::string& spec) override {
    ++clock;
    if (spec == "none") return {.score = 1, .kl = 0, .active = false};
    const double keep = FlopsShare(spec);
    return {.score = keep >= needed_[sample] ? 1.0 : 0.0, .kl = 1 - keep, .active = true};
  }
  double FlopsShare(const std::string& spec) override {
    return std::stod(ParseSpec(spec).front().values.at("keep"));
  }
  std::vector<Cost> Time(const std::vector<std::string>& specs) override {
    std::vector<Cost> costs;
    // Random takes longer than its FLOPs say.
    for (const std::string& spec : specs) {
      const double flops = FlopsShare(spec);
      costs.push_back({flops + (spec.starts_with("random") ? 0.5 : 0.0), flops});
    }
    return costs;
  }
  double seconds() const override { return clock; }
  double RunSeconds() override { return 1; }
  double clock = 0;

 private:
  std::vector<double> needed_;
};

struct Tested {
  std::vector<Pick> picks;
  SearchResult result;
};

Tested TestWith(std::vector<double> searched, std::vector<double> held_out, const std::string& budget,
                double deadline = 1e9) {
  SearchOptions options;
  options.budgets = {ParseBudget(budget)};
  options.most_steps = 0;
  const SearchNote note;
  Half first(std::move(searched)), second(std::move(held_out));
  TuneSearch search(options, first, note);
  search.Run({{"static", {"static:keep=0.9", "static:keep=0.6", "static:keep=0.4", "static:keep=0.3"}},
              {"random", {"random:keep=0.35"}}});
  Tested tested{PickSettings(search, options.budgets, second, deadline, note), {}};
  tested.result = search.result();
  return tested;
}

const std::string& SpecOf(const Tested& tested, size_t pick) {
  return tested.result.tried[*tested.picks[pick].chosen].spec;
}

TEST(HeldOut, WhatHoldsIsTaken) {
  const Tested tested = TestWith(std::vector<double>(40, 0.32), std::vector<double>(40, 0.32), "1%");
  ASSERT_EQ(tested.picks.size(), 2u);
  EXPECT_EQ(SpecOf(tested, 0), "static:keep=0.4");
  EXPECT_EQ(SpecOf(tested, 1), "random:keep=0.35");
  EXPECT_TRUE(tested.picks[0].rejected.empty());
  EXPECT_EQ(tested.picks[0].held_out.quality.samples, 40u);
  EXPECT_DOUBLE_EQ(tested.picks[0].held_out.loss(), 0);
  // By time, not by FLOPs.
  EXPECT_EQ(BestPick(tested.picks, ParseBudget("1%"), tested.result), &tested.picks[0]);
}

TEST(HeldOut, OneLostAnswerIsAllowedAndTwoAreNot) {
  std::vector<double> held_out(40, 0.1);
  held_out[7] = 0.5;
  Tested tested = TestWith(std::vector<double>(40, 0.32), held_out, "1%");
  EXPECT_EQ(SpecOf(tested, 0), "static:keep=0.4");
  EXPECT_NEAR(tested.picks[0].held_out.loss(), 1.0 / 40, 1e-12);
  EXPECT_GT(tested.picks[0].held_out.loss_interval().high, 1.0 / 40);
  held_out[8] = 0.5;
  tested = TestWith(std::vector<double>(40, 0.32), held_out, "1%");
  EXPECT_EQ(SpecOf(tested, 0), "static:keep=0.6") << "the next milder one";
  ASSERT_EQ(tested.picks[0].rejected.size(), 1u);
  EXPECT_EQ(tested.result.tried[tested.picks[0].rejected[0].candidate].spec, "static:keep=0.4");
  EXPECT_NEAR(tested.picks[0].rejected[0].held_out.loss(), 2.0 / 40, 1e-12);
  EXPECT_FALSE(tested.picks[1].chosen.has_value()) << "random has no milder one";
  EXPECT_THAT(tested.picks[1].why, HasSubstr("the only setting"));
}

TEST(HeldOut, LargerBudgetsAllowTheirShare) {
  HeldOut held_out;
  held_out.quality = {.samples = 100, .score = 85, .dense_score = 90, .kl = 0};
  EXPECT_TRUE(LosesTooMuch(ParseBudget("5%"), held_out)) << "4.5 answers";
  EXPECT_FALSE(LosesTooMuch(ParseBudget("6%"), held_out));
  held_out.quality.score = 95;
  EXPECT_FALSE(LosesTooMuch(ParseBudget("0%"), held_out)) << "a gain";
}

TEST(HeldOut, GivesUpAfterThreeSettings) {
  const Tested tested = TestWith(std::vector<double>(40, 0.2), std::vector<double>(40, 0.95), "1%");
  EXPECT_FALSE(tested.picks[0].chosen.has_value());
  EXPECT_EQ(tested.picks[0].rejected.size(), kMostTries);
  EXPECT_EQ(BestPick(tested.picks, ParseBudget("1%"), tested.result), nullptr);
}

TEST(HeldOut, SaysWhatTheSearchDidNotFind) {
  const Tested tested = TestWith(std::vector<double>(40, 0.95), std::vector<double>(40, 0.95), "1%");
  EXPECT_THAT(tested.picks[0].why, HasSubstr("nothing within the budget: the nearest is static:keep="));
}

TEST(HeldOut, TheTimeLimitLeavesWhatIsUntestedWithoutASetting) {
  const Tested tested = TestWith(std::vector<double>(40, 0.32), std::vector<double>(40, 0.32), "1%", 80);
  EXPECT_TRUE(tested.picks[0].chosen.has_value()) << "the fastest is tested first";
  EXPECT_FALSE(tested.picks[1].chosen.has_value());
  EXPECT_THAT(tested.picks[1].why, HasSubstr("the time limit"));
}

// Half of the samples tell something, if they are not too few; the pick says how many they were.
TEST(HeldOut, ATestThatTheLimitEndsCountsIfItHasHalf) {
  const auto tested = [](size_t samples, double deadline) {
    return TestWith(std::vector<double>(40, 0.32), std::vector<double>(samples, 0.32), "1%", deadline);
  };
  const Tested half = tested(40, 50);
  ASSERT_TRUE(half.picks[0].chosen.has_value());
  EXPECT_EQ(half.picks[0].held_out.quality.samples, 25u);
  EXPECT_FALSE(tested(40, 30).picks[0].chosen.has_value()) << "15 of 40";
  EXPECT_TRUE(tested(40, 30).picks[0].out_of_time);
  EXPECT_FALSE(tested(12, 20).picks[0].chosen.has_value()) << "10 are too few";
}

TEST(HeldOut, FewSamplesForgiveNothing) {
  HeldOut held_out;
  held_out.quality = {.samples = kForgiving, .score = kForgiving - 1.0, .dense_score = kForgiving, .kl = 0};
  EXPECT_FALSE(LosesTooMuch(ParseBudget("1%"), held_out));
  held_out.quality = {.samples = 5, .score = 4, .dense_score = 5, .kl = 0};
  EXPECT_TRUE(LosesTooMuch(ParseBudget("1%"), held_out)) << "a fifth is lost";
  EXPECT_FALSE(LosesTooMuch(ParseBudget("20%"), held_out));
}

// The larger budget's first setting fails, and the next milder one must compute 3 % of dense's FLOPs more.
// The setting that passed for the smaller budget lies between them.
TEST(HeldOut, ALargerBudgetTakesWhatPassedForASmallerOne) {
  SearchOptions options;
  options.budgets = {ParseBudget("1%"), ParseBudget("5%")};
  options.most_steps = 0;
  std::vector<double> searched(40, 0.2);
  searched[3] = 0.31;
  Half first(searched), second(std::vector<double>(40, 0.31));
  const SearchNote note;
  TuneSearch search(options, first, note);
  search.Run({{"static", {"static:keep=0.9", "static:keep=0.6", "static:keep=0.32", "static:keep=0.3"}}});
  const std::vector<Pick> picks = PickSettings(search, options.budgets, second, 1e9, note);
  ASSERT_EQ(picks.size(), 2u);
  EXPECT_EQ(picks[1].rejected.size(), 1u) << "0.3";
  for (const Pick& pick : picks) {
    ASSERT_TRUE(pick.chosen.has_value());
    EXPECT_EQ(search.result().tried[*pick.chosen].spec, "static:keep=0.32");
    EXPECT_DOUBLE_EQ(pick.held_out.loss(), 0);
  }
}

TEST(HeldOut, DivergenceMayBeAboveItsBudgetByChanceOnly) {
  HeldOut held_out;
  for (int i = 0; i < 20; ++i) held_out.kl.push_back(i % 2 == 0 ? 0.0 : 0.2);
  held_out.quality = {.samples = 20, .score = 20, .dense_score = 20, .kl = 2};
  EXPECT_FALSE(LosesTooMuch(ParseBudget("kl=0.08"), held_out));
  EXPECT_TRUE(LosesTooMuch(ParseBudget("kl=0.07"), held_out));
  EXPECT_FALSE(LosesTooMuch(ParseBudget("0%"), held_out));
}

}  // namespace
}  // namespace coppice::held_out_test
