// Random numbers that are the same with every standard library and every libtorch: what a seed gives is part of what a
// training run promises.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

namespace coppice {

// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A stream of its own for each place that draws, so that nothing has to be stored to go on in the middle.
  Random(std::initializer_list<uint64_t> place) : state_(0) {
    for (const uint64_t word : place) state_ = Next() ^ word;
  }

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, 1)
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // [0, limit); the bias of the remainder is limit / 2^64.
  int64_t Below(int64_t limit) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(limit)); }
  // -log(-log(u)) for u in (0, 1).
  double Gumbel() { return -std::log(-std::log(Uniform() * (1 - 0x1p-53) + 0x1p-54)); }

  // 0, 1, ..., count - 1 in random order (Fisher and Yates).
  std::vector<int64_t> Permutation(int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), int64_t{0});
    for (int64_t i = count - 1; i > 0; --i) {
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(Below(i + 1))]);
    }
    return order;
  }

 private:
  uint64_t state_;
};

}  // namespace coppice
