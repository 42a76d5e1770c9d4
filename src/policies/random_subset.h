// Random choices that are the same on every machine: random drop, and the random controls of other methods.
#pragma once

#include <cstdint>

#include "tensor/token_set.h"

namespace coppice {

// Seeds of a spec: whole numbers that a double holds exactly.
inline constexpr int64_t kMaxSeed = int64_t{1} << 53;

// `count` of the rows [0, universe), each such set equally likely. The same arguments give the same set on
// every machine; the standard library's distributions do not guarantee that.
TokenSet RandomSubset(int64_t count, int64_t universe, uint64_t seed);

// A seed for one layer, so that the choices of different layers are independent.
uint64_t SeedOfLayer(uint64_t seed, int layer);

}  // namespace coppice
