// Transfers with Linux's io_uring (liburing; io_uring(7)): one system call starts each, and the kernel runs
// it. All code here runs on the caller's thread.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "kv/io_queue.h"

namespace coppice {

namespace {

// Transfers under way at once; the kernel's completion ring holds twice that.
constexpr unsigned kDepth = 128;
constexpr int64_t kMaxBytes = int64_t{1} << 30;  // per operation, whose length field has 32 bits
constexpr int kSubmitAttempts = 1000;            // one per millisecond, while the kernel is short of memory

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

class UringQueue final : public IoQueue {
 public:
  explicit UringQueue(int fd) : fd_(fd) {}

  // Returns 0, or the errno that says why the kernel does not allow io_uring.
  int Open() {
    const int result = io_uring_queue_init(kDepth, &ring_, 0);
    if (result != 0) return -result;
    open_ = true;
    io_uring_probe* probe =
        io_uring_get_probe_ring(&ring_);  // IORING_OP_READ and WRITE came after io_uring itself: Linux 5.6
    const bool able = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                      io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    if (probe != nullptr) io_uring_free_probe(probe);
    return able ? 0 : ENOSYS;
  }

  ~UringQueue() override {
    if (!open_) return;
    closing_ = true;
    while (in_kernel_ > 0) Reap(true);
    io_uring_queue_exit(&ring_);
  }

  void Submit(Transfer& t) override {
    while (in_kernel_ == kDepth) Reap(true);
    Start(t);
  }

  Transfer* Take(bool wait) override {
    while (Reap(false)) {
    }
    while (wait && finished_.empty() && in_kernel_ > 0) Reap(true);
    return finished_.Pop();
  }

  std::string_view kind() const override { return "io_uring"; }

 private:
  // Submits the rest of the transfer to the kernel.
  void Start(Transfer& t) {
    if (refused_ == 0) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null: each entry is submitted at once
      std::byte* data = t.data + t.moved;
      const auto bytes = static_cast<unsigned>(std::min(t.bytes - t.moved, kMaxBytes));
      const auto at = static_cast<uint64_t>(t.offset + t.moved);
      if (t.write) {
        io_uring_prep_write(sqe, fd_, data, bytes, at);
      } else {
        io_uring_prep_read(sqe, fd_, data, bytes, at);
      }
      io_uring_sqe_set_data(sqe, &t);
      int result = io_uring_submit(&ring_);
      for (int i = 0;
           i < kSubmitAttempts && (result == 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR);
           ++i) {
        Nap();
        result = io_uring_submit(&ring_);
      }
      if (result == 1) {
        ++in_kernel_;
        return;
      }
      // The entry stays in the ring, so a later submission would start it too. Hence nothing may be submitted
      // any more.
      refused_ = result < 0 ? -result : EAGAIN;
    }
    t.error = refused_;
    finished_.Push(t);
  }

  // Handles one completion. Returns false if there is none and `wait` is not set.
  bool Reap(bool wait) {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) != 0) {
      if (!wait) return false;
      // If waiting fails (a signal, no memory), the next peek still finds completions.
      if (io_uring_wait_cqe(&ring_, &cqe) == 0) break;
      Nap();
    }
    Transfer& t = *static_cast<Transfer*>(io_uring_cqe_get_data(cqe));
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    --in_kernel_;
    if (Advance(t, result) || closing_) {
      finished_.Push(t);
    } else {
      Start(t);
    }
    return true;
  }

  int fd_;
  io_uring ring_{};
  bool open_ = false;
  bool closing_ = false;
  unsigned in_kernel_ = 0;
  int refused_ = 0;  // the errno with which the kernel refused a submission; 0 if it refused none
  TransferList finished_;
};

}  // namespace

std::unique_ptr<IoQueue> MakeUringQueue(int fd, int& error) {
  auto queue = std::make_unique<UringQueue>(fd);
  error = queue->Open();
  return error == 0 ? std::move(queue) : nullptr;
}

}  // namespace coppice
