// What a job whose own time between two steps is long leaves to the others. A rest here would take hours, so
// no test depends on how fast the machine is.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/scheduler.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a step refers to; the scheduler only passes it on.
template <typename T>
T& Unread() {
  alignas(T) static std::byte bytes[sizeof(T)];
  return *reinterpret_cast<T*>(bytes);
}

bool Eventually(const std::function<bool()>& holds) {
  const auto end = Clock::now() + std::chrono::minutes(1);
  while (!holds() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  return holds();
}

constexpr size_t kForever = 1000;

// Jobs that decode until they are cancelled, and sample for as many milliseconds as they have prompt tokens,
// less one; those with kForever never come to a step. A millisecond of own time costs 28 hours of rest.
class SchedulerRestTest : public testing::Test {
 protected:
  SchedulerRestTest()
      : scheduler_([](Job& job, const JobTurns& turns, JobResult& result) { return Run(job, turns, result); },
                   [](std::span<DecodeStep* const>) {}, metrics_, {.slots = 4, .own_share = 1e-8}) {}
  void TearDown() override {
    scheduler_.Cancel(jobs_);
    scheduler_.Stop();
  }

  static bool Run(Job& job, const JobTurns& turns, JobResult& result) {
    const milliseconds own(std::ssize(job.request.tokens) - 1);
    try {
      turns.pause();
      job.processed = std::ssize(job.request.tokens);
      job.decoded = 1;
      while (own == milliseconds(kForever) && !job.cancelled) {
        std::this_thread::sleep_for(milliseconds(1));
        turns.rest();
      }
      while (!job.cancelled) {
        DecodeStep step{{}, Unread<const Pass>(), Unread<Tensor>()};
        turns.decode(step);
        std::this_thread::sleep_for(own);
        ++job.decoded;
        turns.pause();
      }
    } catch (const Cancelled&) {
    }
    result.cancelled = true;
    return false;
  }

  std::shared_ptr<Job> Submit(size_t own_ms) {
    auto job = std::make_shared<Job>();
    job->request.tokens.resize(own_ms + 1);
    job->request.max_tokens = 1'000'000;
    job->arrived = Clock::now();
    job->events = std::make_shared<NoEvents>();
    jobs_.push_back(job);
    scheduler_.Submit({job});
    return job;
  }

  static bool GoesOn(const Job& job, int64_t steps = 10) {
    const int64_t before = job.decoded;
    return Eventually([&] { return job.decoded >= before + steps; });
  }
  bool Computes(int64_t prompt_tokens) const {
    return std::ranges::any_of(scheduler_.Slots(),
                               [&](const SlotState& slot) { return slot.prompt_tokens == prompt_tokens; });
  }

  Metrics metrics_;
  std::vector<std::shared_ptr<Job>> jobs_;
  TurnScheduler scheduler_;
};

TEST_F(SchedulerRestTest, AJobThatIsAloneNeverRests) { EXPECT_TRUE(GoesOn(*Submit(5))); }

TEST_F(SchedulerRestTest, OthersComputeWhileAJobRests) {
  const std::shared_ptr<Job> slow = Submit(60);
  EXPECT_TRUE(GoesOn(*slow, 2));
  const std::shared_ptr<Job> other = Submit(0);
  const int64_t before = slow->decoded;  // it may end the sampling that is under way
  EXPECT_TRUE(Eventually([&] { return other->decoded > 30; }));
  EXPECT_LE(slow->decoded, before + 1);
}

TEST_F(SchedulerRestTest, OthersComputeBetweenPartsOfWhatAJobDoesForItself) {
  const std::shared_ptr<Job> slow = Submit(kForever);
  EXPECT_TRUE(Eventually([&] { return slow->decoded == 1; }));
  EXPECT_TRUE(GoesOn(*Submit(0), 30));
}

TEST_F(SchedulerRestTest, ARestEndsWhenNobodyElseComputes) {
  const std::shared_ptr<Job> slow = Submit(60);
  const std::shared_ptr<Job> other = Submit(60);
  EXPECT_TRUE(Eventually([&] { return slow->decoded > 30 || other->decoded > 30; }));
  const bool slow_rests = slow->decoded < other->decoded;
  scheduler_.Cancel({slow_rests ? other : slow});
  EXPECT_TRUE(GoesOn(slow_rests ? *slow : *other));
}

TEST_F(SchedulerRestTest, CancellationEndsARest) {
  const std::shared_ptr<Job> slow = Submit(60);
  const std::shared_ptr<Job> other = Submit(61);
  EXPECT_TRUE(Eventually([&] { return slow->decoded > 30 || other->decoded > 30; }));
  const std::shared_ptr<Job> resting = slow->decoded < other->decoded ? slow : other;
  const int64_t tokens = std::ssize(resting->request.tokens);  // the scheduler takes them at the end
  EXPECT_TRUE(Computes(tokens));
  scheduler_.Cancel({resting});
  EXPECT_TRUE(Eventually([&] { return !Computes(tokens); }));
}

}  // namespace
}  // namespace coppice
