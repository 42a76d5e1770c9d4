// The search on landscapes that are known.
#include "eval/tune/search.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "policies/spec.h"

namespace coppice {
namespace {

using testing::HasSubstr;

// Specs "static:keep=K": K of the work. A sample i is right where the spec keeps what the sample needs; the
// divergence is what is dropped. "quest" stands aside, "h2o" saves nothing.
class FakeRunner final : public TuneRunner {
 public:
  explicit FakeRunner(std::vector<double> needed) : needed_(std::move(needed)) {}

  size_t samples() const override { return needed_.size(); }

  Trial Run(size_t sample, const std::string& spec) override {
    ++runs[spec];
    EXPECT_TRUE(asked.emplace(sample, spec).second)
        << "sample " << sample << " of " << spec << " was run twice";
    if (spec == "none") return {.score = dense_score, .kl = 0, .ttft_ms = 100, .active = false};
    if (spec == "quest") return {.score = dense_score, .kl = 0, .ttft_ms = 100, .active = false};
    const double keep = KeepOf(spec);
    return {.score = keep >= needed_[sample] ? dense_score : 0,
            .kl = 1 - keep,
            .ttft_ms = 100 * (keep + slowness),
            .active = true};
  }
  double FlopsShare(const std::string& spec) override {
    if (spec == "h2o") return 1;
    if (spec == "quest") return 0.99;
    const double keep = KeepOf(spec);
    if (keep <= 0) throw Error("no such spec");
    return keep;
  }
  std::vector<double> Retime(const std::vector<std::string>& specs) override {
    std::vector<double> ratios;
    for (const std::string& spec : specs) ratios.push_back(KeepOf(spec) + slowness);
    retimed = specs;
    return ratios;
  }

  std::map<std::string, int> runs;
  std::set<std::pair<size_t, std::string>> asked;
  std::vector<std::string> retimed;
  double slowness = 0.05;
  double dense_score = 1;

 private:
  static double KeepOf(const std::string& spec) {
    return std::stod(ParseSpec(spec).front().values.at("keep"));
  }
  std::vector<double> needed_;
};

std::vector<std::string> Keeps(std::initializer_list<double> keeps) {
  std::vector<std::string> specs;
  for (const double keep : keeps) specs.push_back(fmt::format("static:keep={:g}", keep));
  return specs;
}

double KeepOf(const SearchResult& result) {
  return std::stod(ParseSpec(result.tried[*result.best].spec).front().values.at("keep"));
}

SearchResult SearchWith(const std::string& budget, const std::vector<std::string>& specs, FakeRunner& runner,
                        size_t most_steps = 0) {
  return Search(specs, {.budget = ParseBudget(budget), .most_steps = most_steps}, runner, nullptr);
}

// One hard sample, late in the list, needs 0.55 of the work.
std::vector<double> OneHardSample() {
  std::vector<double> needed(16, 0.2);
  needed[13] = 0.55;
  return needed;
}

TEST(Search, FindsTheFastestThatLosesNothing) {
  FakeRunner runner(OneHardSample());
  const SearchResult result = SearchWith("1%", Keeps({0.9, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25}), runner);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_DOUBLE_EQ(KeepOf(result), 0.6);
  EXPECT_DOUBLE_EQ(result.dense_score, 1);
  EXPECT_DOUBLE_EQ(result.tried[*result.best].ttft_ratio(), 0.65);
  EXPECT_TRUE(result.tried[*result.best].retimed.has_value());
}

TEST(Search, ALooserBudgetIsFaster) {
  FakeRunner runner(OneHardSample());
  const SearchResult result = SearchWith("10%", Keeps({0.9, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25}), runner);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_DOUBLE_EQ(KeepOf(result), 0.25);
}

TEST(Search, DivergenceIsABudgetToo) {
  FakeRunner runner(std::vector<double>(8, 0.1));
  const SearchResult result = SearchWith("kl=0.35", Keeps({0.9, 0.7, 0.5, 0.3}), runner);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_DOUBLE_EQ(KeepOf(result), 0.7);
  FakeRunner both(OneHardSample());
  EXPECT_DOUBLE_EQ(KeepOf(SearchWith("1%,kl=0.5", Keeps({0.9, 0.7, 0.6, 0.5, 0.4}), both)), 0.6);
}

TEST(Search, StopsWhereTheBudgetIsLost) {
  FakeRunner runner(std::vector<double>(32, 0.5));
  const SearchResult result = SearchWith("1%", Keeps({0.4, 0.6}), runner);
  EXPECT_DOUBLE_EQ(KeepOf(result), 0.6);
  EXPECT_EQ(runner.runs["static:keep=0.4"], 1) << "the first wrong answer is more than the budget";
  FakeRunner looser(std::vector<double>(32, 0.5));
  SearchWith("10%", Keeps({0.4, 0.6}), looser);
  EXPECT_EQ(looser.runs["static:keep=0.4"], 4) << "three of 32 are within 10 %, four are not";
}

// What is fast looks right until the last sample: those that it overtook must come back.
TEST(Search, WhatWasOvertakenComesBackWhereTheFastFail) {
  std::vector<double> needed(16, 0.01);
  needed[15] = 0.8;
  FakeRunner runner(needed);
  std::vector<std::string> specs;
  for (int keep = 2; keep <= 40; ++keep) specs.push_back(fmt::format("static:keep={:g}", keep / 50.0));
  const SearchResult result = SearchWith("1%", specs, runner);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_DOUBLE_EQ(KeepOf(result), 0.8);
}

TEST(Search, HalvingSavesRuns) {
  FakeRunner runner(std::vector<double>(64, 0.01));
  std::vector<std::string> specs;
  for (int keep = 1; keep <= 40; ++keep) specs.push_back(fmt::format("static:keep={:g}", keep / 50.0));
  EXPECT_DOUBLE_EQ(KeepOf(SearchWith("1%", specs, runner)), 0.02);
  EXPECT_LT(runner.asked.size(), 40u * 64 / 2);
}

TEST(Search, RefinementGoesBelowTheGrid) {
  FakeRunner runner(OneHardSample());
  const SearchResult result = SearchWith("1%", Keeps({0.9, 0.5}), runner, 40);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_LT(KeepOf(result), 0.62);
  EXPECT_GE(KeepOf(result), 0.55);
}

TEST(Search, ProgressGoesForwardAndToTheEnd) {
  FakeRunner runner(OneHardSample());
  std::vector<double> shares;
  const SearchNote note = [&](const SearchProgress& progress) { shares.push_back(progress.share); };
  Search(Keeps({0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25}), {.budget = ParseBudget("1%")}, runner, note);
  ASSERT_GT(shares.size(), 40u);
  EXPECT_EQ(shares.front(), 0);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares[16], 0.02) << "dense's runs are work, too";
  EXPECT_LT(shares[16], 0.3) << "and a small part of it";
  EXPECT_GT(shares.back(), 0.5) << "timing again is the last";
  EXPECT_LE(shares.back(), 1);
}

TEST(Search, RefinementEndsAfterItsSteps) {
  FakeRunner runner(std::vector<double>(4, 0.0001));
  const SearchResult result = SearchWith("1%", Keeps({0.9}), runner, 3);
  size_t run = 0;
  for (const Candidate& c : result.tried) run += c.quality.samples > 0;
  EXPECT_EQ(run, 4u);
}

TEST(Search, NothingMeetsTheBudget) {
  FakeRunner runner(std::vector<double>(8, 0.95));
  const SearchResult result = SearchWith("kl=0.05", Keeps({0.9, 0.8, 0.5}), runner);
  EXPECT_FALSE(result.best.has_value());
  ASSERT_TRUE(result.nearest.has_value());
  EXPECT_EQ(result.tried[*result.nearest].spec, "static:keep=0.9");
  EXPECT_NEAR(result.tried[*result.nearest].mean_kl(), 0.1, 1e-9);
  for (const Candidate& c : result.tried) EXPECT_EQ(c.verdict, Verdict::kOver);
}

TEST(Search, WhatIsNotFasterThanDenseIsNoAnswer) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  runner.slowness = 0.6;
  const SearchResult result = SearchWith("1%", Keeps({0.9, 0.5}), runner);
  EXPECT_FALSE(result.best.has_value());
  ASSERT_TRUE(result.nearest.has_value());
  EXPECT_TRUE(Meets(ParseBudget("1%"), result.tried[*result.nearest].quality));
}

TEST(Search, WhatSavesNothingOrStandsAsideIsNoCandidate) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  const SearchResult result =
      SearchWith("1%", {"h2o", "quest", "static:keep=-1", "static:keep=0.5", "static:keep=0.5"}, runner);
  ASSERT_EQ(result.tried.size(), 2u);
  EXPECT_EQ(result.tried[*result.best].spec, "static:keep=0.5");
  EXPECT_EQ(result.tried[1].verdict, Verdict::kAside);
  EXPECT_EQ(runner.runs.count("h2o"), 0u);
}

TEST(Search, AScoreOfZeroHasNoShare) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  runner.dense_score = 0;
  EXPECT_THROW(SearchWith("1%", Keeps({0.5}), runner), Error);
  FakeRunner other(std::vector<double>(4, 0.1));
  other.dense_score = 0;
  EXPECT_TRUE(SearchWith("kl=0.9", Keeps({0.5}), other).best.has_value());
}

TEST(Search, TheBestFewAreTimedAgain) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  SearchWith("1%", Keeps({0.9, 0.7, 0.5, 0.3, 0.2}), runner);
  EXPECT_THAT(runner.retimed, testing::ElementsAre("static:keep=0.2", "static:keep=0.3", "static:keep=0.5"));
}

TEST(Budget, IsReadAndSaidPlainly) {
  EXPECT_DOUBLE_EQ(*ParseBudget("1%").score_loss, 0.01);
  EXPECT_DOUBLE_EQ(*ParseBudget("kl=0.05").kl, 0.05);
  EXPECT_EQ(ParseBudget("2.5%,kl=0.1").Text(), "2.5 % of the dense score and KL 0.1");
  EXPECT_EQ(ParseBudget("kl=0").Text(), "KL 0");
  for (const char* bad :
       {"", "1", "%", "kl=", "kl=-1", "-1%", "101%", "1%,2%", "kl=nan", "1%;kl=2", "kl=1,kl=2", "1%,,kl=2"})
    EXPECT_THROW(ParseBudget(bad), Error) << bad;
}

TEST(Budget, WhatCanStillBeMet) {
  const QualityBudget score = ParseBudget("10%"), kl = ParseBudget("kl=0.1");
  // Of ten samples that dense has right nine must be.
  EXPECT_TRUE(CanMeet(score, {.samples = 1, .score = 0, .dense_score = 1, .kl = 9}, 10, 10));
  EXPECT_FALSE(CanMeet(score, {.samples = 2, .score = 0, .dense_score = 2, .kl = 0}, 10, 10));
  EXPECT_TRUE(Meets(score, {.samples = 10, .score = 9, .dense_score = 10, .kl = 0}));
  EXPECT_FALSE(Meets(score, {.samples = 10, .score = 8.9, .dense_score = 10, .kl = 0}));
  EXPECT_TRUE(CanMeet(kl, {.samples = 1, .score = 0, .dense_score = 1, .kl = 1.0}, 10, 10));
  EXPECT_FALSE(CanMeet(kl, {.samples = 1, .score = 1, .dense_score = 1, .kl = 1.01}, 10, 10));
  EXPECT_DOUBLE_EQ(BudgetUse(score, {.samples = 10, .score = 9.5, .dense_score = 10, .kl = 0}), 0.5);
  EXPECT_GT(BudgetUse(ParseBudget("0%"), {.samples = 1, .score = 0.9, .dense_score = 1, .kl = 0}), 1);
}

}  // namespace
}  // namespace coppice
