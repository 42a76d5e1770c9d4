#include "eval/random.h"

#include <unordered_map>

#include "base/check.h"

namespace coppice {

std::vector<int64_t> Random::Distinct(int64_t count, int64_t universe) {
  COPPICE_CHECK(0 <= count && count <= universe);
  // The first steps of a shuffle of all numbers, of which only the moved ones are kept.
  std::unordered_map<int64_t, int64_t> moved;
  const auto at = [&](int64_t i) { return moved.contains(i) ? moved[i] : i; };
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t other = i + static_cast<int64_t>(Below(static_cast<uint64_t>(universe - i)));
    chosen.push_back(at(other));
    moved[other] = at(i);
  }
  return chosen;
}

Random RandomFor(uint64_t seed, std::string_view task, int64_t length, int64_t sample) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : task) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  Random mixed(seed);
  for (const uint64_t part : {hash, static_cast<uint64_t>(length), static_cast<uint64_t>(sample)})
    mixed = Random(mixed.Next() ^ part);
  return mixed;
}

}  // namespace coppice
