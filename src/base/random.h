// Random numbers that are the same on every machine, unlike those of the standard library's distributions.
// Samples, methods and training runs promise reproducible results for a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace coppice {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class Random {
 public:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  // Maps the n-th state, seed + n * kStep, to the n-th output.
  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix(state_ += kStep); }
  // Uniform in [0, bound); bound > 0. Draws below 2^64 mod bound would favour small remainders, so they are
  // rejected. That limit is itself below `bound`, so most draws skip the second division.
  uint64_t Below(uint64_t bound) {
    uint64_t draw = Next();
    while (draw < bound && draw < (0 - bound) % bound) draw = Next();
    return draw % bound;
  }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  template <typename Items>
  const auto& Pick(const Items& items) {
    return items[static_cast<size_t>(Below(items.size()))];
  }
  // Fisher-Yates, from the end.
  template <typename Item>
  void Shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[static_cast<size_t>(Below(i))]);
  }
  // `count` distinct numbers from [0, universe) in random order; count <= universe. O(universe) time and
  // memory.
  std::vector<int64_t> Distinct(int64_t count, int64_t universe);

 private:
  uint64_t state_;
};

// An independent generator for each `place`: it does not depend on how often other places draw, and needs no
// stored state to resume.
Random RandomAt(std::initializer_list<uint64_t> place, uint64_t seed = 0);

}  // namespace coppice
