// Transfers by a few threads that block in the kernel, for systems without io_uring.
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "kv/io_queue.h"

namespace coppice {

namespace {

constexpr int kThreads = 4;  // enough to keep a disk busy; they block in the kernel and use little CPU time

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(int fd) : fd_(fd) {
    threads_.reserve(kThreads);
    try {
      for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {  // the system limits threads: fewer suffice
    }
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool HasThreads() const { return !threads_.empty(); }

  void Submit(Transfer& t) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.Push(t);
    }
    ++under_way_;
    work_.notify_one();
  }

  Transfer* Take(bool wait) override {
    if (under_way_ == 0) return nullptr;
    std::unique_lock lock(mutex_);
    if (wait) done_.wait(lock, [this] { return !finished_.empty(); });
    Transfer* t = finished_.Pop();
    if (t != nullptr) --under_way_;
    return t;
  }

  std::string_view kind() const override { return "threads"; }

 private:
  void Work() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
      Transfer* t = waiting_.Pop();
      lock.unlock();
      RunTransfer(fd_, *t);
      lock.lock();
      finished_.Push(*t);
      done_.notify_one();
    }
  }

  int fd_;
  int64_t under_way_ = 0;  // submitted and not taken back; used by the caller's thread only
  std::mutex mutex_;       // guards the members below
  std::condition_variable work_;
  std::condition_variable done_;
  TransferList waiting_;
  TransferList finished_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> MakeThreadQueue(int fd) {
  auto queue = std::make_unique<ThreadQueue>(fd);
  return queue->HasThreads() ? std::move(queue) : nullptr;
}

}  // namespace coppice
