#include "base/memory_rate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/seconds.h"

namespace coppice {

namespace {

using ReadClock = std::chrono::steady_clock;

constexpr int64_t kPieceWords = int64_t{1} << 16;  // half a MiB for each turn of a thread

// Independent sums, so that loads do not wait for one another.
uint64_t SumOf(const uint64_t* words, int64_t count) {
  std::array<uint64_t, 16> sums{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (size_t k = 0; k < 16; ++k) sums[k] += words[i + static_cast<int64_t>(k)];
  }
  uint64_t sum = 0;
  for (const uint64_t one : sums) sum += one;
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace

double MemoryReadRate(const ThreadPool& pool, int64_t bytes, double seconds) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint64_t));
  COPPICE_CHECK(count > 0);
  const auto words = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(count));
  pool.For(count, kPieceWords,
           [&](int64_t begin, int64_t end, int) { std::fill(words.get() + begin, words.get() + end, 1); });
  std::vector<double> passes;
  const ReadClock::time_point start = ReadClock::now();
  do {
    std::atomic<uint64_t> sum = 0;
    const ReadClock::time_point begun = ReadClock::now();
    pool.For(count, kPieceWords,
             [&](int64_t begin, int64_t end, int) { sum += SumOf(words.get() + begin, end - begin); });
    passes.push_back(Seconds(ReadClock::now() - begun));
    COPPICE_CHECK(sum == static_cast<uint64_t>(count));  // also keeps the compiler from skipping the reads
  } while (Seconds(ReadClock::now() - start) < seconds);
  std::ranges::nth_element(passes, passes.begin() + std::ssize(passes) / 2);
  const double median = std::max(passes[passes.size() / 2], 1e-9);
  return static_cast<double>(count) * sizeof(uint64_t) / median;
}

int64_t MoreThanCaches() {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  return std::clamp(4 * cache, 64 * kMiB, 512 * kMiB);
}

}  // namespace coppice
