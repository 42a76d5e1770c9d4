// What the scheduler reads ahead of a conversation's next turn: given up when the turn comes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/next_turn.h"
#include "server/scheduler.h"

namespace coppice {
namespace {

using std::chrono::milliseconds;

void WaitAhead(const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(done());
}

std::shared_ptr<Job> Turn(int32_t text, size_t tokens) {
  auto job = std::make_shared<Job>();
  job->request.tokens.assign(tokens, text);
  job->events = std::make_shared<NoEvents>();
  job->arrived = std::chrono::steady_clock::now();
  return job;
}

std::shared_ptr<Job> Ahead(int32_t text, size_t tokens) {
  auto job = Turn(text, tokens);
  job->beginning = std::make_shared<const TurnAnswer>();
  return job;
}

class SchedulerAhead : public testing::Test {
 protected:
  void TearDown() override { scheduler_.Stop(); }

  // Reads ahead until it is cancelled or `may_end_`; answers at once.
  bool Run(Job& job, const JobTurns& turns) {
    ++running_;
    if (!job.beginning) {
      EXPECT_EQ(reads_, 0) << "a read must have given way";
      ++answers_;
      return true;
    }
    try {
      while (!may_end_) {
        ++reads_;
        std::this_thread::sleep_for(milliseconds(1));
        --reads_;
        if (job.cancelled) throw Cancelled();
        turns.pause();
      }
    } catch (const Cancelled&) {
      ++cancelled_;
      return false;
    }
    ++read_;
    return true;
  }

  std::atomic<int> running_{0}, reads_{0}, answers_{0}, cancelled_{0}, read_{0};
  std::atomic<bool> may_end_{false};
  Metrics metrics_;
  TurnScheduler scheduler_{[this](Job& job, const JobTurns& turns, JobResult&) { return Run(job, turns); },
                           TurnScheduler::DecodeTogether(), metrics_, SchedulerOptions{.slots = 2}};
};

TEST_F(SchedulerAhead, TheTurnItselfEndsIt) {
  scheduler_.Complete(Ahead(1, 100));
  WaitAhead([&] { return running_ == 1; });
  scheduler_.Submit({Turn(1, 140)});
  WaitAhead([&] { return answers_ == 1 && cancelled_ == 1; });
  WaitAhead([&] { return scheduler_.incomplete() == 0; });
  EXPECT_EQ(read_, 0);
}

TEST_F(SchedulerAhead, OtherRequestsPassIt) {
  scheduler_.Complete(Ahead(1, 100));
  WaitAhead([&] { return running_ == 1; });
  auto stranger = Turn(1, 140);
  stranger->request.documents_owner.key = 5;
  scheduler_.Submit({Turn(2, 140)});
  scheduler_.Submit({stranger});
  WaitAhead([&] { return answers_ == 2; });
  EXPECT_EQ(cancelled_, 0);
  may_end_ = true;
  WaitAhead([&] { return read_ == 1 && scheduler_.incomplete() == 0; });
  EXPECT_NE(metrics_.Text({}).find("documents_completed_total 1\n"), std::string::npos);
}

TEST_F(SchedulerAhead, WhatWaitsIsDropped) {
  scheduler_.Complete(Ahead(1, 100));
  scheduler_.Complete(Ahead(2, 100));
  scheduler_.Complete(Ahead(3, 100));
  EXPECT_EQ(scheduler_.incomplete(), 3);
  scheduler_.Submit({Turn(2, 100)});
  WaitAhead([&] { return answers_ == 1; });
  EXPECT_EQ(scheduler_.incomplete(), 2);
  may_end_ = true;
  WaitAhead([&] { return read_ == 2; });
  EXPECT_EQ(cancelled_, 0);
}

// A read that completes a document is no turn's beginning.
TEST_F(SchedulerAhead, CompletingReadsGoOn) {
  auto document = Turn(1, 100);
  may_end_ = true;
  scheduler_.Complete(Ahead(2, 100));
  scheduler_.Complete(document);
  scheduler_.Submit({Turn(1, 140)});
  WaitAhead([&] { return answers_ == 2 && scheduler_.incomplete() == 0; });
}

}  // namespace
}  // namespace coppice
