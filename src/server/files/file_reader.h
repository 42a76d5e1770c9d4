// Threads that read files, so that no handler thread waits for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/files/file_text.h"

namespace coppice {

// Thread-safe. Reads up to two files at once, each by one child.
class FileReader {
 public:
  struct Task {
    std::string bytes;
    std::shared_ptr<const std::atomic<bool>> cancelled;  // may be null
    // One of these is called by a thread of the reader, and must not throw. `failed` may call
    // std::rethrow_exception: what ReadFileText throws, or Cancelled.
    std::function<void(FileText text)> done;
    std::function<void(std::exception_ptr error)> failed;
  };

  explicit FileReader(FileTools tools) : tools_(std::move(tools)) {}
  ~FileReader() { Stop(); }
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Throws HttpError (503) if too many files wait, or after Stop().
  void Submit(Task task);
  // Cancels all tasks and waits for their children's end, which is soon.
  void Stop();

 private:
  void Run();

  const FileTools tools_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Task> waiting_;
  std::vector<std::thread> threads_;  // begun with the first tasks
  size_t idle_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace coppice
