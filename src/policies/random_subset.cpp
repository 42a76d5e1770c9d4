// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) draws; the
// first `count` steps of a Fisher-Yates shuffle choose. O(universe) memory, O(universe + count log count)
// time.
#include "policies/random_subset.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"

namespace coppice {

namespace {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound): draws below 2^64 mod bound would favour small remainders and are drawn again.
  uint64_t Below(uint64_t bound) {
    const uint64_t skip = (0 - bound) % bound;
    uint64_t draw = Next();
    while (draw < skip) draw = Next();
    return draw % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

TokenSet RandomSubset(int64_t count, int64_t universe, uint64_t seed) {
  COPPICE_CHECK(count >= 0 && count <= universe);
  if (count == universe) return TokenSet::All(universe);
  std::vector<int32_t> rows(static_cast<size_t>(universe));
  std::iota(rows.begin(), rows.end(), 0);
  SplitMix64 random(seed);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(rows[i], rows[i + static_cast<size_t>(random.Below(rows.size() - i))]);
  }
  rows.resize(static_cast<size_t>(count));
  return TokenSet::Of(std::move(rows), universe);
}

uint64_t SeedOfLayer(uint64_t seed, int layer) {
  return SplitMix64(seed).Next() ^ SplitMix64(~static_cast<uint64_t>(layer)).Next();
}

}  // namespace coppice
