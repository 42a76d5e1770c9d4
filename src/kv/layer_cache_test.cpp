#include "kv/layer_cache.h"

#include <gtest/gtest.h>

#include <numeric>

namespace coppice {
namespace {

TEST(LayerCache, KeepsRowsWhileItGrows) {
  LayerCache cache(DType::kF32, 3);
  cache.Reserve(2);
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 50; p += 1 + p % 3) {
    positions.push_back(p);
    const LayerCache::Fresh fresh = cache.Append(std::vector<int32_t>{p});
    for (int64_t c = 0; c < 3; ++c) {
      fresh.keys.Row<float>(0)[c] = static_cast<float>(10 * p + c);
      fresh.values.Row<float>(0)[c] = static_cast<float>(-10 * p - c);
    }
  }
  ASSERT_EQ(cache.rows(), static_cast<int64_t>(positions.size()));
  EXPECT_EQ(cache.bytes(), cache.rows() * 3 * 4 * 2);
  for (int64_t i = 0; i < cache.rows(); ++i) {
    EXPECT_EQ(cache.positions()[i], positions[i]);
    EXPECT_EQ(cache.keys().Row<float>(i)[2], static_cast<float>(10 * positions[i] + 2));
    EXPECT_EQ(cache.values().Row<float>(i)[0], static_cast<float>(-10 * positions[i]));
  }
}

TEST(LayerCache, RefusesPositionsThatDoNotAscend) {
  LayerCache cache(DType::kF32, 1);
  cache.Append(std::vector<int32_t>{5, 6});
  EXPECT_THROW(cache.Append(std::vector<int32_t>{6}), CheckFailure);
  EXPECT_THROW(cache.Append({}), CheckFailure);
}

}  // namespace
}  // namespace coppice
