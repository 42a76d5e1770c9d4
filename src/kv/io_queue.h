// The queue of transfers to and from the cold tier's file. Transfers may end in any order; the store above
// never submits two transfers of one record at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace coppice {

inline constexpr int kEndOfFile = -1;  // Transfer::error when the file ends before the record

// A part of a file to read or write. The caller owns it and must not move it while it is under way.
struct Transfer {
  bool write = false;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the file

  int64_t moved = 0;         // bytes moved so far
  int error = 0;             // an errno, kEndOfFile, or 0
  Transfer* next = nullptr;  // used by the queue's lists
};

// A FIFO list. It allocates nothing, so a queue's thread cannot fail on it.
class TransferList {
 public:
  bool empty() const { return head_ == nullptr; }
  void Push(Transfer& t) {
    t.next = nullptr;
    (empty() ? head_ : tail_->next) = &t;
    tail_ = &t;
  }
  Transfer* Pop() { return empty() ? nullptr : std::exchange(head_, head_->next); }

 private:
  Transfer* head_ = nullptr;
  Transfer* tail_ = nullptr;
};

// For use by one thread. No call throws; errors are stored in the transfer.
class IoQueue {
 public:
  virtual ~IoQueue() = default;  // waits for running transfers and drops the rest
  virtual void Submit(Transfer& t) = 0;
  // Returns a transfer that has ended, or null if there is none. With `wait`, null means that none is under
  // way.
  virtual Transfer* Take(bool wait) = 0;
  virtual std::string_view kind() const = 0;
};

// Queues over an open file, which must outlive them. MakeUringQueue returns null and sets `error` to an errno
// if the kernel does not allow io_uring. MakeThreadQueue returns null if no thread can be started.
std::unique_ptr<IoQueue> MakeUringQueue(int fd, int& error);
std::unique_ptr<IoQueue> MakeThreadQueue(int fd);
std::unique_ptr<IoQueue> MakeSyncQueue(int fd);

// Applies the result of a read or write of the rest of `t`: a byte count, or a negative errno. Returns true
// if the transfer has ended, false if part of it remains.
bool Advance(Transfer& t, int64_t result);
// Runs the transfer to its end, in as many system calls as it takes.
void RunTransfer(int fd, Transfer& t);

}  // namespace coppice
