// Divides the rows of a matrix among threads, so that each thread reads one stream of rows from memory.
//
// Each thread has a share of neighbouring rows and takes its pieces in order; a thread that has finished
// takes pieces from other shares. With one common counter, neighbouring pieces go to different threads, and
// where a piece ends, the hardware prefetcher's stream and the prefetched data belong to another thread. Zen
// 4, two threads, Q4_0 in rows of 2048, from memory: 18.4 GB/s with a common counter, 20.8 with shares for
// 2048 rows; 13.4 and 17.7 for 512 rows.
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

  // Restarts with rows [0, rows), in pieces of at most `grain`. Returns the number of pieces: call Take that
  // often.
  int64_t Split(int64_t rows, int64_t grain) {
    grain_ = grain;
    used_ = static_cast<int>(
        std::clamp<int64_t>(rows / grain, 1, threads_));  // one share per `grain` rows at most
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

  // Returns a piece that no other call returns; empty if none is left. Thread-safe between two calls of
  // Split.
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
  struct alignas(64) Share {  // aligned, so that each share has its own cache line
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  int threads_;
  int used_ = 1;  // shares in use
  int64_t grain_ = 1;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace coppice::cpu
