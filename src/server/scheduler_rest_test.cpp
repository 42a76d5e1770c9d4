// What a job that computes long for itself between two steps leaves to the others.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/scheduler.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Ignored final : public JobEvents {
 public:
  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs&) override {}
  void OnText(int32_t, const std::string&) override {}
  void OnDone(const JobResult&) override {}
  void OnError(const HttpFault&) override {}
};

// What a step refers to; the scheduler only passes it on.
template <typename T>
T& Unread() {
  alignas(T) static std::byte bytes[sizeof(T)];
  return *reinterpret_cast<T*>(bytes);
}

// Jobs that decode until they are cancelled: a step takes 2 ms for all, and sampling as many milliseconds as
// the job has prompt tokens, less one.
class SchedulerRestTest : public testing::Test {
 protected:
  SchedulerRestTest()
      : scheduler_(
            [this](Job& job, const JobTurns& turns, JobResult& result) { return Run(job, turns, result); },
            [](std::span<DecodeStep* const>) { std::this_thread::sleep_for(milliseconds(2)); }, metrics_,
            {.slots = 8}) {}
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
    job->events = std::make_shared<Ignored>();
    jobs_.push_back(job);
    scheduler_.Submit({job});
    return job;
  }

  static double Rate(const Job& job, milliseconds time = milliseconds(1500)) {
    const int64_t before = job.decoded;
    std::this_thread::sleep_for(time);
    return static_cast<double>(job.decoded - before) / static_cast<double>(time.count());
  }

  Metrics metrics_;
  std::vector<std::shared_ptr<Job>> jobs_;
  TurnScheduler scheduler_;
};

TEST_F(SchedulerRestTest, OthersKeepTheirRateBesideAJobThatTakesLong) {
  const std::shared_ptr<Job> first = Submit(0);
  for (int i = 0; i < 5; ++i) Submit(0);
  std::this_thread::sleep_for(milliseconds(100));
  const double alone = Rate(*first);
  const std::shared_ptr<Job> slow = Submit(60);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_GT(Rate(*first), 0.7 * alone);  // 0.03 of it without rests
  EXPECT_GT(slow->decoded, 2);           // and it goes on
}

TEST_F(SchedulerRestTest, AloneItRestsNever) {
  const std::shared_ptr<Job> slow = Submit(20);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_GT(Rate(*slow), 0.03);  // of at most 1 / 22
}

TEST_F(SchedulerRestTest, TwoThatTakeLongDoNotWaitForNobody) {
  const std::shared_ptr<Job> a = Submit(20);
  const std::shared_ptr<Job> b = Submit(20);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_GT(Rate(*a) + Rate(*b), 0.02);
}

TEST_F(SchedulerRestTest, ShortSamplingIsFree) {
  const std::shared_ptr<Job> a = Submit(0);
  const std::shared_ptr<Job> b = Submit(0);
  std::this_thread::sleep_for(milliseconds(100));
  const double rate = Rate(*a);
  EXPECT_NEAR(Rate(*b), rate, 0.3 * rate);
}

TEST_F(SchedulerRestTest, CancellationEndsARest) {
  Submit(0);
  const std::shared_ptr<Job> slow = Submit(500);
  std::this_thread::sleep_for(milliseconds(1500));  // it rests for seconds
  const auto start = Clock::now();
  scheduler_.Cancel({slow});
  while (std::ranges::any_of(scheduler_.Slots(), [](const SlotState& s) { return s.prompt_tokens == 501; }) &&
         Clock::now() - start < std::chrono::seconds(5))
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_LT(Clock::now() - start, milliseconds(700));
}

}  // namespace
}  // namespace coppice
