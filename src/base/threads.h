// A fixed pool of threads for loops over tiles, rows and heads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace coppice {

// Runs loops on `size()` threads, including the caller's. Only one loop runs at a time and loops cannot nest,
// so the pool never oversubscribes the machine.
class ThreadPool {
 public:
  // threads >= 1. Throws Error if the system cannot start them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(begin, end, thread) for disjoint pieces of [0, count) of at most `grain` items each. Free
  // threads take the pieces in ascending order. Returns when all are done. `thread` is in [0, size()) and can
  // index per-thread scratch. After a piece throws, no further piece starts, and the first exception is
  // rethrown here.
  void For(int64_t count, int64_t grain,
           const std::function<void(int64_t begin, int64_t end, int thread)>& body) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The number of cores this process may run on.
int AllowedCores();
// Of these, as many as the CPU quota of its control group pays for: what a container may use.
int UsableCores();

}  // namespace coppice
