// The parts of the cold tier's file, for cold_store.cpp and for tests that supply their own file or queue.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kv/cold_store.h"
#include "kv/io_queue.h"

namespace coppice {

// Owns an open file descriptor.
class FileHandle {
 public:
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&&) = delete;
  ~FileHandle();
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens an unnamed file in `folder`. With `by_name` it creates a named file and unlinks it, for file systems
// without O_TMPFILE; without `by_name` that is the fallback.
FileHandle OpenUnnamedFile(const std::string& folder, bool by_name);

// Makes a queue of the given kind; messages name `folder`.
std::unique_ptr<IoQueue> MakeIoQueue(ColdIo io, int fd, const std::string& folder);

struct ColdFileParts {
  FileHandle file;
  std::unique_ptr<IoQueue> queue;             // over `file`
  std::string folder;                         // for messages
  int64_t staging_bytes = int64_t{64} << 20;  // limit on memory for records not yet written
};

std::unique_ptr<RecordStore> MakeColdFile(ColdFileParts parts, int64_t record_bytes);

}  // namespace coppice
