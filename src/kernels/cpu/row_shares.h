// Rows of a matrix handed out in pieces, so that each thread reads one stream of them from memory.
//
// Every thread has a share of neighbouring rows and takes its pieces in order; who is done takes pieces of the others'.
// Pieces from one common counter alternate between threads: where one ends, the stream that the processor follows, and
// what was asked for ahead, belong to another. Zen 4, two threads, Q4_0 in rows of 2048, GB/s from memory: 18.4 against
// 20.8 with 2048 rows, 13.4 against 17.7 with 512.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace coppice::cpu {

struct RowRange {
  int64_t begin;
  int64_t end;
};

class RowShares {
 public:
  explicit RowShares(int threads)
      : threads_(threads), shares_(std::make_unique<Share[]>(static_cast<size_t>(threads))) {}

  // Begins anew with rows [0, rows), in pieces of at most `grain`. Returns the number of pieces, which is how often to
  // call Take.
  int64_t Split(int64_t rows, int64_t grain) {
    grain_ = grain;
    used_ = static_cast<int>(
        std::clamp<int64_t>(rows / grain, 1, threads_));  // a piece is worth a thread, less is not
    int64_t pieces = 0;
    for (int t = 0; t < used_; ++t) {
      Share& share = shares_[static_cast<size_t>(t)];
      const int64_t begin = rows * t / used_;
      share.end = rows * (t + 1) / used_;
      share.next.store(begin, std::memory_order_relaxed);
      pieces += (share.end - begin + grain - 1) / grain;
    }
    return pieces;
  }

  // A piece that nobody else gets; empty where none is left. From any thread, between two calls of Split.
  RowRange Take(int thread) {
    for (int i = 0; i < used_; ++i) {
      Share& share = shares_[static_cast<size_t>((thread + i) % used_)];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const int64_t begin = share.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin < share.end) return {begin, std::min(begin + grain_, share.end)};
    }
    return {0, 0};
  }

 private:
  struct alignas(64) Share {  // a cache line of its own
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  int threads_;
  int used_ = 1;  // of the shares
  int64_t grain_ = 1;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace coppice::cpu
