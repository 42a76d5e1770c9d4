// Who has the turn, with jobs that only pretend to compute.
#include "server/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>

#include "base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What became of a job.
class Ending final : public JobEvents {
 public:
  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs&) override {}
  void OnText(int32_t, const std::string&) override {}
  void OnDone(const JobResult&) override { end_.set_value(200); }
  void OnError(const HttpFault& fault) override { end_.set_value(fault.status); }
  // 200, the status of its error, or 0 where neither came in time.
  int Wait(milliseconds limit = milliseconds(20'000)) {
    return future_.wait_for(limit) == std::future_status::ready ? future_.get() : 0;
  }
  bool over() const { return future_.wait_for(milliseconds(0)) == std::future_status::ready; }

 private:
  std::promise<int> end_;
  std::future<int> future_ = end_.get_future();
};

struct TestJob {
  std::shared_ptr<Job> job;
  std::shared_ptr<Ending> ending;
  int Wait() const { return ending->Wait(); }
};

// A job with this many prompt tiles and generated tokens, one millisecond each.
TestJob MakeJob(int tiles, int tokens = 1) {
  TestJob made{std::make_shared<Job>(), std::make_shared<Ending>()};
  made.job->request.tokens.resize(static_cast<size_t>(tiles));
  made.job->request.max_tokens = tokens;
  made.job->arrived = Clock::now();
  made.job->events = made.ending;
  return made;
}

class SchedulerTest : public testing::Test {
 protected:
  TurnScheduler& Start(const SchedulerOptions& options) {
    return scheduler_.emplace([this](Job& job, const JobTurns& turns,
                                     JobResult& result) { return Pretend(job, turns.pause, result); },
                              TurnScheduler::DecodeTogether(), metrics_, options);
  }
  void TearDown() override {
    scheduler_.reset();
    EXPECT_EQ(computing_, 0);
    EXPECT_LE(most_, 1);
  }

  bool Pretend(Job& job, const std::function<void()>& pause, JobResult& result) {
    try {
      const auto tiles = static_cast<int64_t>(job.request.tokens.size());
      for (int64_t i = 0; i < tiles + job.request.max_tokens; ++i) {
        pause();
        if (job.cancelled) throw Cancelled();
        most_ = std::max<int>(most_, ++computing_);
        for (const auto end = Clock::now() + milliseconds(1); Clock::now() < end;) {
        }
        ++(i < tiles ? job.processed : job.decoded);
        --computing_;
      }
      job.events->OnDone({});
      return true;
    } catch (const Cancelled&) {
      result.cancelled = true;
      job.events->OnError({503, "", ""});
      return false;
    }
  }

  std::atomic<int> computing_{0};
  std::atomic<int> most_{0};
  Metrics metrics_;
  std::optional<TurnScheduler> scheduler_;
};

void WaitUntil(const std::function<bool()>& what) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (!what() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(what());
}

TEST_F(SchedulerTest, ManyComeToTheirEndAndOneAtATimeComputes) {
  TurnScheduler& scheduler = Start({.slots = 3, .max_waiting = 100, .shortest_turn = {}});
  std::vector<TestJob> jobs;
  for (int i = 0; i < 40; ++i) {
    jobs.push_back(MakeJob(1 + i % 5, 1 + i % 3));
    scheduler.Submit({jobs.back().job});
  }
  for (const TestJob& job : jobs) EXPECT_EQ(job.Wait(), 200);
  EXPECT_EQ(scheduler.waiting(), 0);
  WaitUntil([&] {
    const std::vector<SlotState> slots = scheduler.Slots();
    return slots.size() == 3 &&
           std::all_of(slots.begin(), slots.end(), [](const auto& s) { return s.task < 0; });
  });
}

// A reply that fails cancels all jobs of its request, also the one that failed.
TEST_F(SchedulerTest, AFailedJobIsNotCountedAsCancelled) {
  std::atomic<int> run{0};
  TurnScheduler& scheduler = scheduler_.emplace(
      [&](Job& job, const JobTurns&, JobResult& result) {
        job.cancelled = true;
        result.cancelled = job.request.max_tokens == 7;
        job.events->OnError({500, "", ""});
        ++run;
        return false;
      },
      TurnScheduler::DecodeTogether(), metrics_, SchedulerOptions{.slots = 1, .max_waiting = 100});
  const TestJob failed = MakeJob(3, 1);
  const TestJob cancelled = MakeJob(3, 7);
  scheduler.Submit({failed.job});
  scheduler.Submit({cancelled.job});
  WaitUntil([&] { return run == 2 && scheduler.Slots().front().task < 0; });
  EXPECT_THAT(metrics_.Text({}), testing::HasSubstr("sequences_cancelled_total 1\n"));
}

TEST_F(SchedulerTest, ShortPromptPassesALongOneThatIsBegun) {
  TurnScheduler& scheduler = Start({.slots = 2, .max_waiting = 100});
  const TestJob first = MakeJob(2000);
  scheduler.Submit({first.job});
  WaitUntil([&] { return first.job->processed > 20; });
  std::vector<TestJob> more;
  for (int i = 0; i < 3; ++i) more.push_back(MakeJob(5000));
  more.push_back(MakeJob(10));
  for (const TestJob& job : more) scheduler.Submit({job.job});
  EXPECT_EQ(more.back().Wait(), 200);
  EXPECT_LT(first.job->processed, 1000);  // half of its way: it would be some 40 tiles further at most
  EXPECT_EQ(scheduler.waiting(), 3);      // a long one is not begun before it may compute
  std::vector<std::shared_ptr<Job>> rest = {first.job};
  for (const TestJob& job : more) rest.push_back(job.job);
  scheduler.Cancel(rest);
  EXPECT_EQ(first.Wait(), 503);
}

TEST_F(SchedulerTest, SequencesThatGenerateGoOnBesideAPrefill) {
  TurnScheduler& scheduler = Start({.slots = 3, .max_waiting = 100});
  const TestJob writer = MakeJob(1, 100'000);
  const TestJob other = MakeJob(1, 100'000);
  scheduler.Submit({writer.job, other.job});
  WaitUntil([&] { return writer.job->decoded > 10 && other.job->decoded > 10; });
  const TestJob reader = MakeJob(300);
  const int64_t before = writer.job->decoded + other.job->decoded;
  scheduler.Submit({reader.job});
  EXPECT_EQ(reader.Wait(), 200);
  const int64_t during = writer.job->decoded + other.job->decoded - before;
  EXPECT_GT(during, 100);  // 300 tiles, 300 tokens, where nothing else runs on the machine
  EXPECT_LT(during, 900);
  EXPECT_NEAR(static_cast<double>(writer.job->decoded), static_cast<double>(other.job->decoded), 40);
  scheduler.Cancel({writer.job, other.job});
  EXPECT_EQ(writer.Wait(), 503);
}

TEST_F(SchedulerTest, AJobWaitsWhileAnotherReadsItsDocument) {
  TurnScheduler& scheduler = Start({.slots = 3, .max_waiting = 100, .least_shared = 50, .shortest_turn = {}});
  const TestJob first = MakeJob(200, 100'000);
  const TestJob second = MakeJob(210, 1);  // the same document, another question
  const TestJob other = MakeJob(205, 1);
  other.job->request.documents_owner.key = 7;
  const TestJob pruned = MakeJob(190, 1);
  pruned.job->request.prune = "sliminfer";  // it cannot use the first's states
  scheduler.Submit({first.job});
  WaitUntil([&] { return first.job->processed > 5; });
  scheduler.Submit({second.job, other.job, pruned.job});
  while (first.job->decoded == 0) {
    EXPECT_EQ(second.job->processed, 0);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(second.Wait(), 200);  // it does not wait for the answer
  EXPECT_EQ(other.Wait(), 200);
  EXPECT_EQ(pruned.Wait(), 200);
  scheduler.Cancel({first.job});
  EXPECT_EQ(first.Wait(), 503);
}

TEST_F(SchedulerTest, ThoseWhoShareADocumentDoNotWaitForALongOneOrForOneThatLeaves) {
  TurnScheduler& scheduler = Start({.slots = 3, .max_waiting = 100, .least_shared = 50, .shortest_turn = {}});
  const TestJob book = MakeJob(20'000);
  scheduler.Submit({book.job});
  WaitUntil([&] { return book.job->processed > 5; });
  const TestJob page = MakeJob(60);
  scheduler.Submit({page.job});
  EXPECT_EQ(page.Wait(), 200);
  EXPECT_EQ(book.job->decoded, 0);
  const TestJob again = MakeJob(19'000);
  scheduler.Submit({again.job});
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(again.job->processed, 0);
  scheduler.Cancel({book.job});
  WaitUntil([&] { return again.job->processed > 0; });
  scheduler.Cancel({again.job});
  EXPECT_EQ(again.Wait(), 503);
  EXPECT_EQ(book.Wait(), 503);
}

TEST_F(SchedulerTest, DocumentsAreCompletedWhileNothingElseComputes) {
  TurnScheduler& scheduler = Start({.slots = 2, .max_waiting = 100, .max_incomplete = 2});
  const TestJob rest = MakeJob(2000, 0);
  scheduler.Complete(rest.job);
  scheduler.Complete(MakeJob(1950, 0).job);  // the same document
  EXPECT_EQ(scheduler.incomplete(), 1);
  WaitUntil([&] { return rest.job->processed > 5; });
  EXPECT_EQ(scheduler.Slots().size(), 3u);
  EXPECT_TRUE(scheduler.Slots().back().completes);
  EXPECT_THROW(scheduler.Prompt(2), HttpError);

  const TestJob request = MakeJob(100, 20);
  scheduler.Submit({request.job});
  WaitUntil([&] { return request.job->processed > 0; });
  const int64_t before = rest.job->processed;
  // `now` is read before the request's end is looked for: until then nothing else computes.
  int64_t now = before;
  WaitUntil([&] {
    const int64_t seen = rest.job->processed;
    if (request.job->decoded < 20) now = seen;
    return request.job->decoded >= 20;
  });
  EXPECT_LE(now, before + 1);
  EXPECT_EQ(request.Wait(), 200);
  WaitUntil([&] { return rest.job->processed > before + 5; });  // it goes on

  const TestJob next = MakeJob(30, 0);
  const TestJob after = MakeJob(10, 0);
  scheduler.Complete(next.job);
  scheduler.Complete(after.job);
  scheduler.Complete(MakeJob(5, 0).job);  // too many
  EXPECT_EQ(scheduler.incomplete(), 3);
  EXPECT_EQ(rest.Wait(), 200);
  EXPECT_EQ(next.Wait(), 200);
  EXPECT_EQ(after.Wait(), 200);
  WaitUntil([&] { return scheduler.incomplete() == 0; });
  const TestJob last = MakeJob(20'000, 0);
  scheduler.Complete(last.job);
  WaitUntil([&] { return last.job->processed > 5; });
  scheduler.Stop();
  EXPECT_EQ(last.Wait(), 503);
}

TEST_F(SchedulerTest, CancelledInEveryPlace) {
  TurnScheduler& scheduler = Start({.slots = 2, .max_waiting = 100});
  const TestJob computes = MakeJob(20'000);
  scheduler.Submit({computes.job});
  WaitUntil([&] { return computes.job->processed > 20; });
  const TestJob passes = MakeJob(10'000);
  const TestJob waits = MakeJob(15'000);
  scheduler.Submit({passes.job});
  WaitUntil([&] { return passes.job->processed > 5; });  // `computes` has no turn now
  scheduler.Submit({waits.job});
  EXPECT_EQ(scheduler.waiting(), 1);

  scheduler.Cancel({waits.job});  // in the queue: nobody is there to be told
  EXPECT_EQ(scheduler.waiting(), 0);
  scheduler.Cancel({computes.job});  // without the turn
  EXPECT_EQ(computes.Wait(), 503);
  int64_t at = passes.job->processed;
  WaitUntil([&] { return passes.job->processed > at + 5; });
  scheduler.Cancel({passes.job});  // with it
  at = passes.job->processed;
  EXPECT_EQ(passes.Wait(), 503);
  EXPECT_LE(passes.job->processed, at + 1) << "it ends the tile that is under way, and no more";
  const TestJob last = MakeJob(3);
  scheduler.Submit({last.job});
  EXPECT_EQ(last.Wait(), 200);
}

TEST_F(SchedulerTest, AllSlotsCancelledWhileOthersWait) {
  TurnScheduler& scheduler = Start({.slots = 2, .max_waiting = 100});
  std::vector<TestJob> jobs;
  for (int i = 0; i < 2; ++i) {
    jobs.push_back(MakeJob(20'000 - 10'000 * i));
    scheduler.Submit({jobs.back().job});
    WaitUntil([&] { return jobs.back().job->processed > 5; });
  }
  const TestJob next = MakeJob(3);
  const TestJob last = MakeJob(4);
  scheduler.Submit({next.job, last.job});
  scheduler.Cancel({jobs[0].job, jobs[1].job});
  EXPECT_EQ(next.Wait(), 200);
  EXPECT_EQ(last.Wait(), 200);
}

TEST_F(SchedulerTest, QueueHasALimit) {
  TurnScheduler& scheduler = Start({.slots = 1, .max_waiting = 2});
  std::vector<TestJob> jobs;
  std::vector<std::shared_ptr<Job>> many;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(MakeJob(5000));
    many.push_back(jobs.back().job);
  }
  scheduler.Submit(many);  // an idle server takes what comes
  EXPECT_THROW(scheduler.Submit({MakeJob(1).job}), HttpError);
  EXPECT_EQ(scheduler.waiting(), 3);
  scheduler.Stop();
  for (const TestJob& job : jobs) EXPECT_EQ(job.Wait(), 503);
  EXPECT_THROW(scheduler.Submit({MakeJob(1).job}), HttpError);
}

// A request's answers that wait for its first one count like others, and hold up nobody.
TEST_F(SchedulerTest, LaterJobsWaitInTheQueue) {
  std::atomic<bool> others{false};
  TurnScheduler& scheduler = scheduler_.emplace(
      [&](Job& job, const JobTurns& turns, JobResult& result) {
        const auto pause = [&] {
          others = others || turns.others();
          turns.pause();
        };
        return Pretend(job, pause, result);
      },
      TurnScheduler::DecodeTogether(), metrics_, SchedulerOptions{.slots = 2, .max_waiting = 3});
  const TestJob first = MakeJob(20'000);
  const TestJob later = MakeJob(2);
  const TestJob leaves = MakeJob(2);
  later.job->is_later = leaves.job->is_later = true;
  scheduler.Submit({first.job, later.job, leaves.job});
  WaitUntil([&] { return first.job->processed > 5; });
  EXPECT_EQ(scheduler.waiting(), 2);
  EXPECT_FALSE(others) << "they do not wait for the turn";
  EXPECT_THROW(scheduler.Submit({MakeJob(1).job, MakeJob(1).job, MakeJob(1).job}), HttpError);
  const TestJob next = MakeJob(3);
  scheduler.Submit({next.job});
  EXPECT_EQ(next.Wait(), 200);
  EXPECT_FALSE(later.ending->over());
  EXPECT_EQ(scheduler.waiting(), 2);
  scheduler.Release({later.job});
  EXPECT_EQ(later.Wait(), 200);
  scheduler.Cancel({leaves.job});
  EXPECT_EQ(scheduler.waiting(), 0);
  scheduler.Cancel({first.job});
  EXPECT_EQ(first.Wait(), 503);
}

TEST_F(SchedulerTest, JobsThatFailLeaveTheirSlot) {
  TurnScheduler& scheduler = scheduler_.emplace(
      [this](Job& job, const JobTurns& turns, JobResult& result) {
        if (job.request.tokens.size() == 7) {
          job.events->OnError({500, "", ""});
          return false;
        }
        return Pretend(job, turns.pause, result);
      },
      TurnScheduler::DecodeTogether(), metrics_,
      SchedulerOptions{.slots = 2, .max_waiting = 100, .shortest_turn = {}});
  std::vector<TestJob> jobs;
  for (int i = 0; i < 30; ++i) {
    jobs.push_back(MakeJob(i % 3 == 0 ? 7 : 2));
    scheduler.Submit({jobs.back().job});
  }
  // By number: the slot has taken the tokens of a job that has ended.
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(jobs[i].Wait(), i % 3 == 0 ? 500 : 200) << i;
}

// Clients that come, and leave again, at any moment.
TEST_F(SchedulerTest, ManyThreadsSubmitAndCancel) {
  TurnScheduler& scheduler = Start({.slots = 3, .max_waiting = 1000, .shortest_turn = {}});
  std::vector<std::thread> clients;
  std::atomic<int> ended{0};
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 15; ++i) {
        const TestJob job = MakeJob(1 + (c + i) % 7, 2);
        scheduler.Submit({job.job});
        if ((c + i) % 3 == 0) {
          std::this_thread::sleep_for(milliseconds((i * 7) % 20));
          scheduler.Cancel({job.job});
          ++ended;
        } else {
          ended += job.Wait() == 200;
        }
        scheduler.Slots();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ended, 90);
  const TestJob last = MakeJob(2);
  scheduler.Submit({last.job});
  EXPECT_EQ(last.Wait(), 200);
}

}  // namespace
}  // namespace coppice
