// Transfers that complete inside Submit, and Advance, which all queues share.
#include <unistd.h>

#include <cerrno>

#include "kv/io_queue.h"

namespace coppice {

bool Advance(Transfer& t, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) {
    t.error = static_cast<int>(-result);
  } else if (result == 0) {
    t.error = t.write ? EIO : kEndOfFile;  // a write of 0 bytes would repeat for ever
  } else {
    t.moved += result;
  }
  return t.error != 0 || t.moved >= t.bytes;
}

void RunTransfer(int fd, Transfer& t) {
  int64_t result = 0;
  do {
    std::byte* data = t.data + t.moved;
    const size_t left = static_cast<size_t>(t.bytes - t.moved);
    const off_t at = t.offset + t.moved;
    result = t.write ? pwrite(fd, data, left, at) : pread(fd, data, left, at);
    if (result < 0) result = -errno;
  } while (!Advance(t, result));
}

namespace {

class SyncQueue final : public IoQueue {
 public:
  explicit SyncQueue(int fd) : fd_(fd) {}
  void Submit(Transfer& t) override {
    RunTransfer(fd_, t);
    finished_.Push(t);
  }
  Transfer* Take(bool /*wait*/) override { return finished_.Pop(); }
  std::string_view kind() const override { return "sync"; }

 private:
  int fd_;
  TransferList finished_;
};

}  // namespace

std::unique_ptr<IoQueue> MakeSyncQueue(int fd) { return std::make_unique<SyncQueue>(fd); }

}  // namespace coppice
