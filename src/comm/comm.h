// Several processes that compute one prefill together: what they send each other. The linker chooses the
// implementation: comm/none, which is one process alone, or comm/mpi.
//
// Every process calls the same functions in the same order; only Send and Receive differ. Nothing here adds
// or rounds numbers: bytes arrive as they were sent, so the bits of a result do not depend on the number of
// processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/deal.h"
#include "tensor/view.h"

namespace coppice {

// Of one process, since it started.
struct CommCounts {
  int64_t bytes_sent = 0;     // to other processes, without headers
  double seconds_waited = 0;  // for other processes and for transfers
};

class Comm {
 public:
  virtual ~Comm() = default;

  virtual std::string_view kind() const = 0;  // "none", "mpi"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool leads() const { return rank() == 0; }  // process 0 runs the program; the others follow
  const CommCounts& counts() const { return counts_; }

  // ---- Rows. `rows` [n, any width] of any type is contiguous, in host memory, and has the same shape in
  // every process. `ranges` [size()] ascend and do not overlap.
  // Begins to send this process's range of `rows`, ranges[rank()], to all others, and to receive their ranges
  // in place. Ranges may be empty. Until FinishShares the memory must stay, and nobody may write this
  // process's range or read the others'.
  virtual void BeginShare(MutableTensorView rows, std::span<const RowRange> ranges) = 0;
  virtual void FinishShares() = 0;
  void Share(MutableTensorView rows, std::span<const RowRange> ranges) {
    BeginShare(rows, ranges);
    FinishShares();
  }
  // Sends send_rows[p] rows to process p and receives receive_rows[p] from it. send_rows and receive_rows
  // [size()]; `send` [sum of send_rows, any width] and `receive` [sum of receive_rows, the same width] are
  // contiguous and hold the rows in order of p.
  virtual void Exchange(const TensorView& send, std::span<const int64_t> send_rows, MutableTensorView receive,
                        std::span<const int64_t> receive_rows) = 0;

  // ---- Agreement: replaces each value by the smallest of all processes.
  virtual void Smallest(std::span<uint64_t> values) = 0;

  // ---- Commands. Process 0 sends. The others receive, and use next to no CPU while they wait, maybe for
  // hours.
  virtual void Send(std::span<const std::byte> message) = 0;
  virtual std::vector<std::byte> Receive() = 0;

  // Ends all processes at once with a status other than 0: one of them can no longer take part. The line of
  // text goes to stderr, with this process's rank in front.
  [[noreturn]] virtual void Abort(std::string_view error) = 0;

 protected:
  CommCounts counts_;
};

// The processes that were started together with this one; this one alone where it was started alone. Lives as
// long as the program. Throws Error if the processes cannot reach each other.
Comm& World();

}  // namespace coppice
