#include "server/files/file_reader.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "server/errors.h"

namespace coppice {

namespace {

constexpr size_t kChildrenAtOnce = 2;
constexpr size_t kMostWaiting = 4;  // each holds its file in memory
constexpr int64_t kRetryFiles = 5;  // seconds

}  // namespace

void FileReader::Submit(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw HttpError({503, "unavailable_error", "the server is stopping"});
    if (waiting_.size() >= kMostWaiting + idle_) {
      throw HttpError({.status = 503,
                       .type = "unavailable_error",
                       .message = "this server is reading other files: send the file again in a few seconds",
                       .retry_after = kRetryFiles});
    }
    if (idle_ <= waiting_.size() && threads_.size() < kChildrenAtOnce)
      threads_.emplace_back([this] { Run(); });
    waiting_.push_back(std::move(task));
  }
  came_.notify_one();
}

void FileReader::Run() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      ++idle_;
      came_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const auto cancelled = [&] { return stopped_ || (task.cancelled && *task.cancelled); };
    FileText text;
    try {
      if (cancelled()) throw Cancelled();
      text = ReadFileText(task.bytes, tools_, cancelled);
    } catch (...) {
      task.failed(std::current_exception());
      continue;
    }
    task.bytes = {};
    task.done(std::move(text));
  }
}

void FileReader::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
  }
  came_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace coppice
