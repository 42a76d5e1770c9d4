#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace coppice {

namespace {
thread_local bool inside_loop = false;
}

struct ThreadPool::State {
  // One loop: pieces are claimed by fetch_add, so the order of claims never depends on which thread is quick.
  struct Loop {
    const std::function<void(int64_t, int64_t, int)>* body = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_mutex;
  };

  std::mutex caller_mutex;  // one loop at a time
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  Loop* loop = nullptr;
  uint64_t generation = 0;
  int running = 0;
  bool stop = false;
  std::vector<std::thread> workers;

  static void Work(Loop& loop, int thread) {
    inside_loop = true;
    while (!loop.failed.load(std::memory_order_relaxed)) {
      const int64_t begin = loop.next.fetch_add(loop.grain, std::memory_order_relaxed);
      if (begin >= loop.count) break;
      try {
        (*loop.body)(begin, std::min(begin + loop.grain, loop.count), thread);
      } catch (...) {
        const std::lock_guard lock(loop.error_mutex);
        if (!loop.error) loop.error = std::current_exception();
        loop.failed = true;
      }
    }
    inside_loop = false;
  }

  // Also where the pool's constructor gives up halfway.
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void WorkerMain(int thread) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      Loop* current = loop;
      if (current == nullptr) continue;  // woke after the loop had ended
      ++running;
      lock.unlock();
      Work(*current, thread);
      lock.lock();
      if (--running == 0) done.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  COPPICE_CHECK(threads >= 1);
  state_->workers.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int t = 1; t < threads; ++t) {
      state_->workers.emplace_back([state = state_.get(), t] { state->WorkerMain(t); });
    }
  } catch (const std::system_error& error) {
    throw Error("cannot start {} threads: {}", threads, error.what());
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::For(int64_t count, int64_t grain,
                     const std::function<void(int64_t, int64_t, int)>& body) const {
  if (count <= 0) return;
  COPPICE_CHECK(grain >= 1);
  COPPICE_CHECK(!inside_loop);
  if (size() == 1 || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count), 0);
    return;
  }
  const std::lock_guard one_caller(state_->caller_mutex);
  State::Loop loop;
  loop.body = &body;
  loop.count = count;
  loop.grain = grain;
  {
    const std::lock_guard lock(state_->mutex);
    state_->loop = &loop;
    ++state_->generation;
  }
  state_->wake.notify_all();
  State::Work(loop, 0);
  {
    std::unique_lock lock(state_->mutex);
    state_->loop = nullptr;
    state_->done.wait(lock, [&] { return state_->running == 0; });
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More CPUs than the set has room for: they are not counted out, so all of them.
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace coppice
