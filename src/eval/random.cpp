#include "eval/random.h"

#include "base/fnv.h"

namespace coppice {

Random RandomFor(uint64_t seed, std::string_view task, int64_t length, int64_t sample) {
  return RandomAt({Fnv1a(task), static_cast<uint64_t>(length), static_cast<uint64_t>(sample)}, seed);
}

}  // namespace coppice
