#include "policies/random_subset.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace coppice {

TokenSet RandomSubset(int64_t count, int64_t universe, uint64_t seed) {
  COPPICE_CHECK(count >= 0 && count <= universe);
  if (count == universe) return TokenSet::All(universe);
  const std::vector<int64_t> rows = Random(seed).Distinct(count, universe);
  return TokenSet::Of({rows.begin(), rows.end()}, universe);
}

uint64_t SeedOfLayer(uint64_t seed, int layer) {
  return Random(seed).Next() ^ Random(~static_cast<uint64_t>(layer)).Next();
}

}  // namespace coppice
