// How the cold tier's file is read and written: transfers that are begun and later taken back, in any order.
// The store above sees to it that no two transfers of one record are under way at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace coppice {

inline constexpr int kEndOfFile = -1;  // as a Transfer's error: the file ends before the record does

// Part of a file to be read or written. Belongs to the caller, and stays where it is while under way.
struct Transfer {
  bool write = false;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the file

  int64_t moved = 0;         // of `bytes`, so far
  int error = 0;             // an errno, kEndOfFile, or 0
  Transfer* next = nullptr;  // in the queue's lists
};

// First in, first out; allocates nothing, so that no thread of a queue can fail.
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

// Used by one thread. No call throws: what goes wrong stands in the transfer.
class IoQueue {
 public:
  virtual ~IoQueue() = default;  // waits for what is under way, and drops what has not begun
  virtual void Submit(Transfer& t) = 0;
  // A transfer that ended. Null where there is none, which with `wait` means that none is under way.
  virtual Transfer* Take(bool wait) = 0;
  virtual std::string_view kind() const = 0;
};

// Queues over an open file, which must outlive them. Where the kernel does not allow io_uring: null, and why
// in `error` (an errno). Where no thread can be started: null.
std::unique_ptr<IoQueue> MakeUringQueue(int fd, int& error);
std::unique_ptr<IoQueue> MakeThreadQueue(int fd);
std::unique_ptr<IoQueue> MakeSyncQueue(int fd);

// Takes in what a read or write of the rest of `t` returned: a count of bytes, or an errno below 0. True when
// the transfer has ended; else the rest is still to be moved.
bool Advance(Transfer& t, int64_t result);
// Moves all of it, in as many steps as the kernel wants.
void RunTransfer(int fd, Transfer& t);

}  // namespace coppice
