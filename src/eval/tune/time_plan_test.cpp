// Plans and estimates, from a dense answer's time alone.
#include "eval/tune/time_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice::time_plan_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TuneWork Work(double dense, double minutes) {
  return {.tasks = 6,
          .most_per_half = 16,
          .settings = 200,
          .methods = 12,
          .dense_seconds = dense,
          .limit_seconds = 60 * minutes};
}

TEST(TimePlan, AQuickModelAnswersAllSamples) {
  const TunePlan plan = PlanTune(Work(0.1, 60));
  EXPECT_EQ(plan.tasks, 6u);
  EXPECT_EQ(plan.per_half, 16u);
  EXPECT_FALSE(plan.is_limited);
  EXPECT_DOUBLE_EQ(plan.seconds, plan.whole);
}

TEST(TimePlan, ASlowerModelAnswersFewer) {
  size_t before = 17;
  for (const double dense : {2.0, 5.0, 10.0, 20.0}) {
    const TunePlan plan = PlanTune(Work(dense, 20));
    EXPECT_EQ(plan.tasks, 6u) << dense;
    EXPECT_LT(plan.per_half, before) << dense;
    EXPECT_GE(plan.per_half, 1u);
    EXPECT_DOUBLE_EQ(plan.seconds, 1200) << "the limit";
    EXPECT_GT(plan.whole, 1200);
    before = plan.per_half;
  }
}

// Dense answers of both halves, what is reserved and some search fit into every limit that has room for one
// sample of a task.
TEST(TimePlan, TheReserveFitsIntoTheLimit) {
  for (double dense = 0.5; dense < 60; dense *= 1.3) {
    for (const double minutes : {1.0, 5.0, 20.0, 60.0}) {
      const TunePlan plan = PlanTune(Work(dense, minutes));
      const size_t n = plan.tasks * plan.per_half;
      if (n == 1) continue;
      const double used = dense * static_cast<double>(n) +
                          SecondsBehindSearch(n, ReserveFor(60 * minutes / dense), true, dense);
      EXPECT_LT(used, 60 * minutes) << dense << " s in " << minutes << " minutes";
    }
  }
}

TEST(TimePlan, AShortLimitReservesLess) {
  const TuneReserve few = ReserveFor(9), some = ReserveFor(120), many = ReserveFor(1e9);
  EXPECT_EQ(few.timed, 1u);
  EXPECT_LT(SecondsBehindSearch(1, few, true, 1), 5) << "nine answers have room for a search";
  EXPECT_GT(some.timed, few.timed);
  EXPECT_GT(many.timed_samples, some.timed_samples);
  EXPECT_LT(SecondsBehindSearch(5, some, false, 1), SecondsBehindSearch(5, some, true, 1));
}

TEST(TimePlan, TasksAreLeftOutWhereOneSampleOfEachIsTooMuch) {
  const TunePlan plan = PlanTune(Work(30, 5));
  EXPECT_EQ(plan.per_half, 1u);
  EXPECT_LT(plan.tasks, 6u);
  EXPECT_EQ(PlanTune(Work(1000, 5)).tasks, 1u) << "never none";
  EXPECT_EQ(PlanTune({.tasks = 0, .most_per_half = 0}).tasks, 1u);
}

TEST(Estimate, IsInWords) {
  const TunePlan limited = PlanTune(Work(10, 48));
  const std::string text = EstimateText(limited, 10, 360);
  EXPECT_THAT(text, HasSubstr("6 tasks, "));
  EXPECT_THAT(
      text, HasSubstr("10 s for a dense answer: about 48 minutes, when the time limit (--time-limit) ends"));
  EXPECT_THAT(text, HasSubstr("; --quick: about 6 minutes"));
  const std::string quick = EstimateText(PlanTune(Work(0.1, 60)), 0.1, 0);
  EXPECT_THAT(quick, Not(HasSubstr("--quick")));
  EXPECT_THAT(quick, Not(HasSubstr("time limit")));
  EXPECT_THAT(quick, HasSubstr("0.1 s for a dense answer"));
  EXPECT_EQ(DurationText(20), "less than a minute");
  EXPECT_EQ(DurationText(61), "about 1 minute");
  EXPECT_EQ(DurationText(3 * 3600), "about 3.0 hours");
}

}  // namespace
}  // namespace coppice::time_plan_test
