#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/machine_limits.h"

namespace coppice {

namespace {
thread_local bool inside_loop = false;

// How long a thread spins for work, or for the end of other threads' work, before it sleeps. A decode step
// runs hundreds of loops a few microseconds apart, and waking a sleeping thread costs more than that.
constexpr std::chrono::microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns whether `ready` became true within kSpin.
template <typename Ready>
bool SpinUntil(Ready ready) {
  constexpr int kLooksPerClock = 16;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}
}  // namespace

// A loop is open while `ticket` is odd, and every loop has its own odd ticket. A worker first increments
// `inside` and then checks that the loop it saw is still open; the caller first closes the loop and then
// waits until `inside` is 0. Both operations are sequentially consistent, so one side sees the other: no
// worker touches a loop that its caller has left. Waking sleepers follows the same rule: each side announces
// itself before it checks.
struct ThreadPool::State {
  std::mutex caller_mutex;  // one loop at a time

  // The current loop. Written only while the loop is closed and no worker is inside.
  const std::function<void(int64_t, int64_t, int)>* body = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  std::exception_ptr error;  // guarded by `mutex`
  std::atomic<bool> failed{false};
  // Threads claim pieces with fetch_add, so pieces start in ascending order whichever thread is faster.
  std::atomic<int64_t> next{0};

  std::atomic<uint64_t> ticket{0};
  std::atomic<int> inside{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  bool spin = false;
  std::vector<std::thread> workers;

  void Work(int thread) {
    inside_loop = true;
    while (!failed.load(std::memory_order_relaxed)) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) break;
      try {
        (*body)(begin, std::min(begin + grain, count), thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        failed = true;
      }
    }
    inside_loop = false;
  }

  // Also runs when the constructor of the pool fails halfway, as a member that is already complete.
  ~State() {
    stop = true;
    { const std::lock_guard lock(mutex); }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void WorkerMain(int thread) {
    uint64_t seen = 0;
    while (true) {
      const uint64_t current = AwaitLoop(seen);
      if (stop) return;
      seen = current;
      ++inside;
      if (ticket == current) Work(thread);
      if (--inside == 0 && caller_sleeps) {
        const std::lock_guard lock(mutex);
        done.notify_all();
      }
    }
  }

  // Returns the ticket of an open loop other than `seen`, or any ticket once the pool stops.
  uint64_t AwaitLoop(uint64_t seen) {
    uint64_t current = 0;
    const auto ready = [&] {
      current = ticket;
      return (current % 2 == 1 && current != seen) || stop;
    };
    if (spin && SpinUntil(ready)) return current;
    std::unique_lock lock(mutex);
    ++sleepers;
    wake.wait(lock, ready);
    --sleepers;
    return current;
  }

  void Open() {
    ++ticket;
    if (sleepers == 0) return;
    {
      const std::lock_guard lock(mutex);  // every thread counted in `sleepers` is now waiting
    }
    wake.notify_all();
  }

  void CloseAndWait() {
    ++ticket;
    const auto empty = [&] { return inside == 0; };
    if (empty() || (spin && SpinUntil(empty))) return;
    std::unique_lock lock(mutex);
    caller_sleeps = true;
    done.wait(lock, empty);
    caller_sleeps = false;
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  COPPICE_CHECK(threads >= 1);
  // With more threads than cores, a spinning thread delays a working one.
  state_->spin = threads <= UsableCores();
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
  state_->body = &body;
  state_->count = count;
  state_->grain = grain;
  state_->next = 0;
  state_->failed = false;
  state_->Open();
  state_->Work(0);
  state_->CloseAndWait();
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

int AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails if the machine has more CPUs than a cpu_set_t holds; then count all of them.
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&set));
}

int UsableCores() {
  // Read once: no thread pool asks the file system. A group whose time is used up stops all of its threads
  // until the next period, in the middle of a loop, so a part of a CPU is not counted.
  static const int cores = [] {
    const double quota = CpuQuota().value_or(1e6);
    return std::min(AllowedCores(), std::max(1, static_cast<int>(std::min(quota, 1e6))));
  }();
  return cores;
}

}  // namespace coppice
