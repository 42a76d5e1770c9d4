// Random numbers that are the same on every machine, unlike those of the standard library's distributions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound > 0. The remainder's bias is below 2^-40 for every bound used here.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

  template <typename Items>
  const auto& Pick(const Items& items) {
    return items[static_cast<size_t>(Below(items.size()))];
  }
  template <typename Item>
  void Shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[static_cast<size_t>(Below(i))]);
  }
  // `count` of the numbers [0, universe), in random order; count <= universe.
  std::vector<int64_t> Distinct(int64_t count, int64_t universe);

 private:
  uint64_t state_;
};

// One stream for each thing that is drawn: a task's sample does not depend on how many came before it.
Random RandomFor(uint64_t seed, std::string_view task, int64_t length, int64_t sample);

}  // namespace coppice
