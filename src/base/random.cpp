#include "base/random.h"

#include <numeric>

#include "base/check.h"

namespace coppice {

std::vector<int64_t> Random::Distinct(int64_t count, int64_t universe) {
  COPPICE_CHECK(0 <= count && count <= universe);
  std::vector<int64_t> numbers(static_cast<size_t>(universe));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  // A Fisher-Yates shuffle from the beginning, stopped after `count` steps.
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(numbers[i], numbers[i + static_cast<size_t>(Below(numbers.size() - i))]);
  }
  numbers.resize(static_cast<size_t>(count));
  return numbers;
}

Random RandomAt(std::initializer_list<uint64_t> place, uint64_t seed) {
  Random mixed(seed);
  for (const uint64_t word : place) mixed = Random(mixed.Next() ^ word);
  return mixed;
}

}  // namespace coppice
