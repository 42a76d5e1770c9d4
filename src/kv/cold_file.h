// The parts of the cold tier's file, for cold_store.cpp and for tests that need a file or a queue of their
// own.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kv/cold_store.h"
#include "kv/io_queue.h"

namespace coppice {

// An open file, closed with the object.
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

// A file in `folder` that has no name. `by_name`: by making one with a name and removing that, as file
// systems without O_TMPFILE need; where it is not set, that is the second attempt.
FileHandle OpenUnnamedFile(const std::string& folder, bool by_name);

// A queue of the kind asked for; `folder` for messages.
std::unique_ptr<IoQueue> MakeIoQueue(ColdIo io, int fd, const std::string& folder);

struct ColdFileParts {
  FileHandle file;
  std::unique_ptr<IoQueue> queue;             // over that file
  std::string folder;                         // for messages
  int64_t staging_bytes = int64_t{64} << 20;  // that written records may take up before they are in the file
};

std::unique_ptr<ColdStore> MakeColdFile(ColdFileParts parts, int64_t record_bytes);

}  // namespace coppice
