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

namespace coppice::search_test {
namespace {

using testing::HasSubstr;

// Specs "static:keep=K": K of the work. A sample i is right where the spec keeps what the sample needs; the
// divergence is what is dropped. "quest" stands aside, "h2o" saves nothing. A run takes a second.
class FakeRunner final : public TuneRunner {
 public:
  explicit FakeRunner(std::vector<double> needed) : needed_(std::move(needed)) {}

  size_t samples() const override { return needed_.size(); }

  Trial Run(size_t sample, const std::string& spec) override {
    ++runs[spec];
    ++clock;
    EXPECT_TRUE(spec == "none" || asked.emplace(sample, spec).second)
        << "sample " << sample << " of " << spec << " was run twice";
    if (spec == "none") return {.score = dense_score, .kl = 0, .active = false};
    if (spec == "quest") return {.score = dense_score, .kl = 0, .active = false};
    const double keep = KeepOf(spec);
    return {.score = keep >= needed_[sample] ? dense_score : 0, .kl = 1 - keep, .active = true};
  }
  double FlopsShare(const std::string& spec) override {
    if (spec == "h2o") return 1;
    if (spec == "quest") return 0.98;
    const double keep = KeepOf(spec);
    if (keep <= 0) throw Error("no such spec");
    return keep;
  }
  std::vector<Cost> Time(const std::vector<std::string>& specs) override {
    std::vector<Cost> costs;
    for (const std::string& spec : specs) {
      costs.push_back({KeepOf(spec) + slowness, KeepOf(spec)});
      timed.push_back(spec);
    }
    return costs;
  }
  double seconds() const override { return clock; }
  double RunSeconds() override { return 1; }
  double TimingTakes(size_t specs) override { return timing * static_cast<double>(specs); }

  static double KeepOf(const std::string& spec) {
    return std::stod(ParseSpec(spec).front().values.at("keep"));
  }

  std::map<std::string, int> runs;
  std::set<std::pair<size_t, std::string>> asked;
  std::vector<std::string> timed;
  double slowness = 0.05;
  double dense_score = 1;
  double clock = 0;
  double timing = 0;

 private:
  std::vector<double> needed_;
};

MethodGrid Keeps(std::initializer_list<double> keeps) {
  MethodGrid grid{"static", {}};
  for (const double keep : keeps) grid.specs.push_back(fmt::format("static:keep={:g}", keep));
  return grid;
}

SearchOptions OptionsOf(std::initializer_list<const char*> budgets, size_t most_steps = 0) {
  SearchOptions options;
  for (const char* budget : budgets) options.budgets.push_back(ParseBudget(budget));
  options.most_steps = most_steps;
  return options;
}

SearchResult SearchWith(const SearchOptions& options, const std::vector<MethodGrid>& grids,
                        FakeRunner& runner, const SearchNote& note = nullptr) {
  TuneSearch search(options, runner, note);
  search.Run(grids);
  return search.result();
}

// What the search found for a method; 0 where it found nothing.
double Found(const SearchResult& result, const std::string& budget, const std::string& method = "static") {
  const std::vector<size_t> within = result.WithinBudget(method, ParseBudget(budget));
  return within.empty() ? 0 : FakeRunner::KeepOf(result.tried[within.front()].spec);
}

double FoundWith(const char* budget, const MethodGrid& grid, FakeRunner& runner, size_t most_steps = 0) {
  return Found(SearchWith(OptionsOf({budget}, most_steps), {grid}, runner), budget);
}

// One hard sample, late in the list, needs 0.55 of the work.
std::vector<double> OneHardSample() {
  std::vector<double> needed(16, 0.2);
  needed[13] = 0.55;
  return needed;
}

TEST(Search, FindsTheCheapestThatLosesNothing) {
  FakeRunner runner(OneHardSample());
  const SearchResult result =
      SearchWith(OptionsOf({"1%"}), {Keeps({0.9, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25})}, runner);
  EXPECT_DOUBLE_EQ(Found(result, "1%"), 0.6);
  EXPECT_DOUBLE_EQ(result.dense_score, 1);
  EXPECT_THAT(runner.timed, testing::ElementsAre("static:keep=0.6"));
  EXPECT_DOUBLE_EQ(result.tried[result.WithinBudget("static", ParseBudget("1%")).front()].cost->ttft, 0.65);
}

TEST(Search, EachBudgetHasItsSetting) {
  FakeRunner runner(OneHardSample());
  const SearchResult result =
      SearchWith(OptionsOf({"1%", "10%"}), {Keeps({0.9, 0.7, 0.6, 0.5, 0.3, 0.25})}, runner);
  EXPECT_DOUBLE_EQ(Found(result, "1%"), 0.6);
  EXPECT_DOUBLE_EQ(Found(result, "10%"), 0.25);
  EXPECT_EQ(runner.runs["static:keep=0.5"], 1) << "one budget is open, and the hard sample comes first";
}

TEST(Search, EachMethodHasItsSetting) {
  FakeRunner runner(OneHardSample());
  MethodGrid other{"random", {"random:keep=0.9", "random:keep=0.58", "random:keep=0.1"}};
  const SearchResult result = SearchWith(OptionsOf({"1%"}), {Keeps({0.7, 0.4}), other}, runner);
  EXPECT_DOUBLE_EQ(Found(result, "1%"), 0.7);
  EXPECT_DOUBLE_EQ(Found(result, "1%", "random"), 0.58);
  EXPECT_THAT(result.methods, testing::ElementsAre("static", "random"));
}

TEST(Search, DivergenceIsABudgetToo) {
  FakeRunner runner(std::vector<double>(8, 0.1));
  EXPECT_DOUBLE_EQ(FoundWith("kl=0.35", Keeps({0.9, 0.7, 0.5, 0.3}), runner), 0.7);
  FakeRunner both(OneHardSample());
  EXPECT_DOUBLE_EQ(FoundWith("1%,kl=0.5", Keeps({0.9, 0.7, 0.6, 0.5, 0.4}), both), 0.6);
}

TEST(Search, StopsWhereTheBudgetIsLost) {
  FakeRunner runner(std::vector<double>(32, 0.5));
  EXPECT_DOUBLE_EQ(FoundWith("1%", Keeps({0.4, 0.6}), runner), 0.6);
  EXPECT_EQ(runner.runs["static:keep=0.4"], 1) << "the first wrong answer is more than the budget";
  FakeRunner looser(std::vector<double>(32, 0.5));
  FoundWith("10%", Keeps({0.4, 0.6}), looser);
  EXPECT_EQ(looser.runs["static:keep=0.4"], 3)
      << "within 10 % three of three are lost once in a thousand times";
}

TEST(Search, FewLossesAmongTheFirstAreNotTooMany) {
  std::vector<double> needed(64, 0.1);
  needed[1] = needed[5] = needed[40] = 0.9;  // of 64: within 5 %
  FakeRunner runner(needed);
  EXPECT_DOUBLE_EQ(FoundWith("5%", Keeps({0.95, 0.5}), runner), 0.5);
}

// Ten methods with many settings, 96 samples: a part of the time for each would find nothing anywhere.
TEST(Search, LittleTimeFindsASettingOfTheFirstMethods) {
  FakeRunner runner(std::vector<double>(96, 0.6));
  SearchOptions options = OptionsOf({"1%", "5%"});
  options.seconds = 96 + 1000;
  std::vector<MethodGrid> grids;
  for (const char* name :
       {"coppice", "sliminfer", "lazyllm", "ftp", "static", "random", "snapkv", "pyramidinfer"}) {
    grids.push_back({name, {}, grids.empty() ? 6.0 : 1.0});
    for (int keep = 1; keep <= 30; ++keep)
      grids.back().specs.push_back(fmt::format("{}:keep={:g}", name, keep / 31.0));
  }
  const SearchResult result = SearchWith(options, grids, runner);
  EXPECT_NEAR(Found(result, "1%", "coppice"), 19 / 31.0, 1e-6);
  for (const std::string& method : result.methods) EXPECT_GT(Found(result, "5%", method), 0.5) << method;
  EXPECT_THAT(result.untried, testing::Contains("pyramidinfer"));
  EXPECT_TRUE(result.out_of_time);
  EXPECT_LE(runner.clock, options.seconds + 1);
}

TEST(Search, GallopingMissesNothingCheaper) {
  for (int need = 1; need < 60; ++need) {
    FakeRunner runner(std::vector<double>(4, (need - 0.5) / 60.0));
    MethodGrid grid{"static", {}};
    for (int keep = 1; keep <= 59; ++keep)
      grid.specs.push_back(fmt::format("static:keep={:.6f}", keep / 60.0));
    EXPECT_NEAR(FoundWith("1%", grid, runner), need / 60.0, 1e-5);
    EXPECT_LE(runner.asked.size(), 60u + 4 * 4);
  }
}

TEST(Search, WhatOthersFailedIsAskedFirst) {
  std::vector<double> needed(64, 0.01);
  needed[60] = 0.8;
  FakeRunner runner(needed);
  MethodGrid grid{"static", {}};
  for (int keep = 2; keep <= 45; ++keep) grid.specs.push_back(fmt::format("static:keep={:g}", keep / 50.0));
  EXPECT_DOUBLE_EQ(FoundWith("1%", grid, runner), 0.8);
  EXPECT_EQ(runner.runs["static:keep=0.04"], 61) << "the cheapest looks right for long";
  EXPECT_EQ(runner.runs["static:keep=0.06"], 1);
  EXPECT_LT(runner.asked.size(), 61u + 38 + 64 + 64 + 1) << "two settings answer all, the others one sample";
}

TEST(Search, RefinementGoesBelowTheGrid) {
  FakeRunner runner(OneHardSample());
  const double found = FoundWith("1%", Keeps({0.9, 0.5}), runner, 40);
  EXPECT_LT(found, 0.62);
  EXPECT_GE(found, 0.55);
}

TEST(Search, RefinementEndsAfterItsSteps) {
  FakeRunner runner(std::vector<double>(4, 0.0001));
  const SearchResult result = SearchWith(OptionsOf({"1%"}, 3), {Keeps({0.9})}, runner);
  size_t run = 0;
  for (const Candidate& c : result.tried) run += c.quality.samples > 0;
  EXPECT_EQ(run, 4u);
}

TEST(Search, TheBestIsJoinedByOthers) {
  FakeRunner runner(OneHardSample());
  SearchOptions options = OptionsOf({"1%", "10%"});
  std::vector<std::string> asked;
  options.compose = [&](const std::string& spec) {
    asked.push_back(spec);
    return std::vector<MethodGrid>{{"random+ftp", {fmt::format("random:keep={:g}", 0.57)}}};
  };
  const SearchResult result = SearchWith(options, {Keeps({0.9, 0.6, 0.3})}, runner);
  EXPECT_THAT(asked, testing::ElementsAre("static:keep=0.6", "static:keep=0.3"));
  EXPECT_DOUBLE_EQ(Found(result, "1%", "random+ftp"), 0.57);
  EXPECT_THAT(result.methods, testing::ElementsAre("static", "random+ftp"));
}

TEST(Search, TimeIsSharedAndTheLateGoOnMilder) {
  FakeRunner runner(std::vector<double>(10, 0.955));
  SearchOptions options = OptionsOf({"1%"});
  options.seconds = 200;
  MethodGrid grid{"static", {}}, other{"random", {"random:keep=0.1", "random:keep=0.97"}};
  for (int keep = 1; keep <= 960; ++keep)
    grid.specs.push_back(fmt::format("static:keep={:g}", keep / 1000.0));
  const SearchResult result = SearchWith(options, {grid, other}, runner);
  EXPECT_GT(Found(result, "1%"), 0.95) << "the cheapest first would never have come so far";
  EXPECT_DOUBLE_EQ(Found(result, "1%", "random"), 0.97);
  EXPECT_LE(runner.clock, 200 + 12);
}

TEST(Search, TheLikelySettingsComeFirst) {
  FakeRunner runner(OneHardSample());
  SearchOptions options = OptionsOf({"1%"});
  options.first = {"random:keep=0.7", "static:keep=0.65", "h2o", "static:keep=0.9"};
  options.seconds = 16 * 3 + 4;
  const SearchResult result = SearchWith(options, {Keeps({0.9, 0.8, 0.1})}, runner);
  ASSERT_GE(result.tried.size(), 3u);
  EXPECT_EQ(result.tried[0].spec, "random:keep=0.7");
  EXPECT_EQ(result.tried[1].spec, "static:keep=0.65");
  EXPECT_DOUBLE_EQ(Found(result, "1%", "random"), 0.7);
  EXPECT_DOUBLE_EQ(Found(result, "1%"), 0.65);
  EXPECT_EQ(runner.runs.count("static:keep=0.9"), 0u) << "a cheaper one keeps the budget";
  EXPECT_EQ(runner.runs.count("static:keep=0.8"), 0u) << "limited time is for what can win";
}

// A run that would end behind the limit is not begun.
TEST(Search, TheLimitHoldsToTheRun) {
  for (double seconds = 17; seconds < 120; seconds += 3.7) {
    FakeRunner runner(OneHardSample());
    SearchOptions options = OptionsOf({"1%", "5%"}, 12);
    options.seconds = seconds;
    SearchWith(options, {Keeps({0.9, 0.8, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2})}, runner);
    EXPECT_LE(runner.clock, seconds);
  }
}

TEST(Search, TheFrontierShowsThatNothingCheaperKeepsMore) {
  FakeRunner runner(std::vector<double>(10, 0.45));
  const SearchResult result = SearchWith(OptionsOf({"1%"}), {Keeps({0.9, 0.5, 0.4, 0.3})}, runner);
  const std::vector<size_t> frontier = result.Frontier();
  ASSERT_EQ(frontier.size(), 2u);
  EXPECT_EQ(result.tried[frontier[0]].spec, "static:keep=0.3");
  EXPECT_DOUBLE_EQ(result.KeepsAtMost(result.tried[frontier[0]]), 0.9) << "it lost one and was left";
  EXPECT_EQ(result.tried[frontier[1]].spec, "static:keep=0.5");
  EXPECT_DOUBLE_EQ(result.KeepsAtMost(result.tried[frontier[1]]), 1);
}

TEST(Search, FewAreTimedWhereTheTimeIsShort) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  runner.timing = 10;
  SearchOptions options = OptionsOf({"1%"});
  options.timed_until = 16 + 25;  // four dense answers, four of each setting
  const SearchResult result = SearchWith(
      options, {Keeps({0.5}), {"random", {"random:keep=0.3"}}, {"snapkv", {"snapkv:keep=0.4"}}}, runner);
  EXPECT_THAT(runner.timed, testing::ElementsAre("random:keep=0.3", "snapkv:keep=0.4"));
  EXPECT_TRUE(result.out_of_time);
}

TEST(Search, NothingIsFoundWithoutTime) {
  FakeRunner runner(std::vector<double>(10, 0.5));
  SearchOptions options = OptionsOf({"1%"});
  options.seconds = 12;
  const SearchResult result = SearchWith(options, {Keeps({0.9, 0.6, 0.3})}, runner);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_DOUBLE_EQ(Found(result, "1%"), 0);
}

TEST(Search, MilderIsClearlyMilder) {
  FakeRunner runner(std::vector<double>(8, 0.3));
  const SearchOptions options = OptionsOf({"1%"});
  const SearchNote note;
  TuneSearch search(options, runner, note);
  search.Run({Keeps({0.9, 0.5, 0.41, 0.4, 0.2})});
  const auto first = search.result().WithinBudget("static", options.budgets[0]);
  ASSERT_EQ(search.result().tried[first.front()].spec, "static:keep=0.4");
  const auto milder = search.Milder(first.front(), options.budgets[0], 1e9);
  ASSERT_TRUE(milder.has_value());
  EXPECT_EQ(search.result().tried[*milder].spec, "static:keep=0.5");
  EXPECT_DOUBLE_EQ(search.result().tried[*milder].cost->ttft, 0.55);
  EXPECT_FALSE(search.Milder(*milder, options.budgets[0], 0).has_value()) << "no time is left";
}

TEST(Search, ProgressGoesForwardAndToTheEnd) {
  FakeRunner runner(OneHardSample());
  std::vector<double> shares;
  SearchWith(OptionsOf({"1%"}, 5), {Keeps({0.9, 0.8, 0.7, 0.6, 0.5}), {"random", {"random:keep=0.7"}}},
             runner, [&](const SearchProgress& progress) { shares.push_back(progress.share); });
  ASSERT_GT(shares.size(), 40u);
  EXPECT_EQ(shares.front(), 0);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.back(), 0.9) << "timing is the last";
  EXPECT_LE(shares.back(), 1);
}

TEST(Search, NothingMeetsTheBudget) {
  FakeRunner runner(std::vector<double>(8, 0.95));
  const SearchResult result = SearchWith(OptionsOf({"kl=0.05"}), {Keeps({0.9, 0.8, 0.5})}, runner);
  EXPECT_DOUBLE_EQ(Found(result, "kl=0.05"), 0);
  const auto nearest = result.Nearest("static", ParseBudget("kl=0.05"));
  ASSERT_TRUE(nearest.has_value());
  EXPECT_EQ(result.tried[*nearest].spec, "static:keep=0.9");
  EXPECT_NEAR(result.tried[*nearest].mean_kl(), 0.1, 1e-9);
  for (const Candidate& c : result.tried) EXPECT_EQ(c.verdict, Verdict::kOver);
}

TEST(Search, WhatSavesNothingOrStandsAsideIsNoCandidate) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  const MethodGrid mixed{"static", {"h2o", "static:keep=-1", "static:keep=0.5", "static:keep=0.5"}};
  const SearchResult result =
      SearchWith(OptionsOf({"1%"}), {{"quest", {"quest"}}, {"h2o", {"h2o"}}, mixed}, runner);
  ASSERT_EQ(result.tried.size(), 2u);
  EXPECT_EQ(result.tried[0].verdict, Verdict::kAside);
  EXPECT_EQ(runner.runs["quest"], 1) << "the first sample shows it";
  EXPECT_EQ(result.tried[1].spec, "static:keep=0.5");
  EXPECT_EQ(runner.runs.count("h2o"), 0u);
  EXPECT_THAT(result.methods, testing::ElementsAre("quest", "static"));
}

TEST(Search, AScoreOfZeroHasNoShare) {
  FakeRunner runner(std::vector<double>(4, 0.1));
  runner.dense_score = 0;
  EXPECT_THROW(FoundWith("1%", Keeps({0.5}), runner), Error);
  FakeRunner other(std::vector<double>(4, 0.1));
  other.dense_score = 0;
  EXPECT_DOUBLE_EQ(FoundWith("kl=0.9", Keeps({0.5}), other), 0.5);
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
}  // namespace coppice::search_test
