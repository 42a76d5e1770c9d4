// A fixed pool of threads for loops over tiles, rows and heads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace coppice {

// Runs loops on `size()` threads, the caller's included. One loop at a time, and loops do not nest, so that
// nothing oversubscribes the machine.
class ThreadPool {
 public:
  // threads: at least 1. Throws Error where the system starts no more.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(begin, end, thread) over disjoint pieces of [0, count) of at most `grain` items each, handed
  // out in order to whichever thread is free; returns when all are done. `thread` is in [0, size()), for
  // per-thread scratch. The first exception that a piece throws is rethrown here; no further pieces start
  // after it.
  void For(int64_t count, int64_t grain,
           const std::function<void(int64_t begin, int64_t end, int thread)>& body) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Cores this process may run on.
int UsableCores();

}  // namespace coppice
