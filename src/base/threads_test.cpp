#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace coppice {
namespace {

TEST(ThreadPool, VisitsEveryItemOnce) {
  for (int threads : {1, 2, 5}) {
    const ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      for (int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        pool.For(count, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          EXPECT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  const ThreadPool pool(3);
  EXPECT_THROW(pool.For(100, 1,
                        [](int64_t begin, int64_t, int) {
                          if (begin == 42) throw std::runtime_error("x");
                        }),
               std::runtime_error);
  std::atomic<int> n{0};
  pool.For(100, 1, [&](int64_t, int64_t, int) { ++n; });
  EXPECT_EQ(n.load(), 100);
}

// Runs in its own process, because the limit cannot be raised again.
[[noreturn]] void AskForTooManyThreads() {
  const rlimit limit = {64 << 20, 64 << 20};  // too little address space for the threads' stacks
  setrlimit(RLIMIT_AS, &limit);
  try {
    const ThreadPool pool(1000);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST(ThreadPool, SaysWhenNoMoreThreadsCanBeStarted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  EXPECT_EXIT(AskForTooManyThreads(), testing::ExitedWithCode(3), "cannot start 1000 threads");
}

TEST(ThreadPool, ManyShortLoops) {
  const ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 2000; ++i) pool.For(8, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
  EXPECT_EQ(sum.load(), 2000 * 28);
}

// Workers spin for some microseconds and then sleep. Loops start in both phases, and in between.
TEST(ThreadPool, LoopsAfterPausesOfAnyLength) {
  for (int threads : {2, 4}) {  // with 2, both threads spin if the machine has two cores
    const ThreadPool pool(threads);
    std::atomic<int64_t> sum{0};
    for (int i = 0; i < 2000; ++i) {
      pool.For(8, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(i % 100);
      while (std::chrono::steady_clock::now() < end) {
      }
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    EXPECT_EQ(sum.load(), 2000 * 28);
  }
}

TEST(ThreadPool, EveryFailedLoopThrowsItsOwnError) {
  const ThreadPool pool(2);
  for (int i = 0; i < 200; ++i) {
    try {
      pool.For(16, 1, [&](int64_t, int64_t, int) { throw i; });
      FAIL() << "no error from loop " << i;
    } catch (int error) {
      EXPECT_EQ(error, i);
    }
    int64_t sum = 0;
    pool.For(1, 1, [&](int64_t, int64_t, int) { ++sum; });
    EXPECT_EQ(sum, 1);
  }
}

// A body may wait for another piece of its loop: with as many threads as pieces, all pieces run concurrently.
TEST(ThreadPool, PiecesRunAtTheSameTime) {
  const ThreadPool pool(2);
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> arrived{0};
    pool.For(2, 1, [&](int64_t, int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  }
}

}  // namespace
}  // namespace coppice
