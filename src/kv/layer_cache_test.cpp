#include "kv/layer_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "tensor/device_memory.h"

namespace coppice {
namespace {

using testing::ElementsAre;

constexpr int kCacheHeads = 2;
constexpr int kCacheDim = 3;

// The key of `position` in channel c; values hold the negative.
float Content(int32_t position, int64_t c) { return static_cast<float>(100 * position + c); }

void Fill(const LayerCache::Fresh& fresh, std::span<const int32_t> positions) {
  for (int64_t i = 0; i < fresh.keys.rows; ++i) {
    for (int64_t c = 0; c < fresh.keys.cols; ++c) {
      fresh.keys.Row<float>(i)[c] = Content(positions[i], c);
      fresh.values.Row<float>(i)[c] = -Content(positions[i], c);
    }
  }
}

void Append(LayerCache& cache, const std::vector<int32_t>& positions) {
  Fill(cache.Append(positions), positions);
}

void Insert(LayerCache& cache, const std::vector<int32_t>& positions) {
  const std::vector<int32_t> rows = cache.Insert(positions);
  ASSERT_EQ(rows.size(), positions.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Fill({cache.mutable_keys().Rows(rows[i], 1), cache.mutable_values().Rows(rows[i], 1)},
         std::span(positions).subspan(i, 1));
  }
}

LayerCache Ramp(int32_t rows) {
  LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
  std::vector<int32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0);
  Append(cache, positions);
  return cache;
}

// In every kv head, every row must hold the key and the value of the position that the cache reports for it.
void ExpectConsistent(const LayerCache& cache) {
  ASSERT_EQ(cache.keys().rows, cache.rows());
  for (int h = 0; h < cache.kv_heads(); ++h) {
    const auto positions = cache.positions(h);
    ASSERT_EQ(static_cast<int64_t>(positions.size()), cache.rows());
    for (int64_t i = 0; i < cache.rows(); ++i) {
      for (int64_t c = h * kCacheDim; c < (h + 1) * kCacheDim; ++c) {
        ASSERT_EQ(cache.keys().Row<float>(i)[c], Content(positions[i], c)) << "row " << i << " head " << h;
        ASSERT_EQ(cache.values().Row<float>(i)[c], -Content(positions[i], c)) << "row " << i;
      }
    }
  }
}

std::vector<int32_t> List(std::span<const int32_t> positions) { return {positions.begin(), positions.end()}; }

TEST(LayerCache, KeepsRowsWhileItGrows) {
  LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
  cache.Reserve(2);
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 50; p += 1 + p % 3) {
    positions.push_back(p);
    Append(cache, {p});
  }
  ASSERT_EQ(cache.rows(), static_cast<int64_t>(positions.size()));
  EXPECT_EQ(cache.width(), kCacheHeads * kCacheDim);
  EXPECT_EQ(cache.bytes(), cache.rows() * kCacheHeads * kCacheDim * 4 * 2);
  EXPECT_EQ(List(cache.positions()), positions);
  ExpectConsistent(cache);
}

// A device whose memory is this program's own.
class NearMemory final : public DeviceMemory {
 public:
  std::byte* Allocate(int64_t bytes) override { return new std::byte[static_cast<size_t>(bytes)]; }
  void Free(std::byte* data) noexcept override { delete[] data; }
  void Copy(const TensorView& from, const MutableTensorView& to) override {
    for (int64_t i = 0; i < from.rows; ++i)
      std::memmove(to.RowBytes(i), from.RowBytes(i), static_cast<size_t>(BytesOf(from.dtype, from.cols)));
  }
  void Gather(const TensorView&, std::span<const int32_t>, const MutableTensorView&) override {
    COPPICE_CHECK(false);
  }
  void Zero(const MutableTensorView&) override { COPPICE_CHECK(false); }
};

TEST(LayerCache, ClearedRowsGoToTheSameMemoryAgain) {
  NearMemory memory;
  LayerCache cache(DType::kF32, 2, 4, &memory);
  for (int round = 0; round < 2; ++round) {
    const std::vector<int32_t> positions = {0, 1};
    cache.Append(positions);
    EXPECT_EQ(cache.keys().memory, &memory);
    EXPECT_EQ(cache.values().memory, &memory);
    cache.Clear();
    EXPECT_EQ(cache.rows(), 0);
  }
}

TEST(LayerCache, RefusesPositionsThatDoNotAscend) {
  LayerCache cache(DType::kF32, 1, 1);
  cache.Append(std::vector<int32_t>{5, 6});
  EXPECT_THROW(cache.Append(std::vector<int32_t>{6}), CheckFailure);
  EXPECT_THROW(cache.Append(std::vector<int32_t>{9, 8}), CheckFailure);
  EXPECT_THROW(cache.Append({}), CheckFailure);
  EXPECT_THROW(cache.Insert(std::vector<int32_t>{6}), CheckFailure);
  EXPECT_THROW(cache.Insert(std::vector<int32_t>{8, 7}), CheckFailure);
  EXPECT_THAT(List(cache.positions()), ElementsAre(5, 6));
}

TEST(LayerCache, InsertsAmongRows) {
  LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
  Append(cache, {2, 5, 6, 9});
  EXPECT_TRUE(cache.Insert({}).empty());
  Insert(cache, {0, 3, 4, 7, 12, 13});
  EXPECT_THAT(List(cache.positions()), ElementsAre(0, 2, 3, 4, 5, 6, 7, 9, 12, 13));
  EXPECT_THAT(cache.RowsOf(std::vector<int32_t>{0, 3, 4, 7, 12, 13}), ElementsAre(0, 2, 3, 6, 8, 9));
  ExpectConsistent(cache);
}

TEST(LayerCache, InsertsIntoAnEmptyCache) {
  LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
  Insert(cache, {3, 8});
  EXPECT_THAT(List(cache.positions()), ElementsAre(3, 8));
  ExpectConsistent(cache);
}

TEST(LayerCache, AddsRowsWhereTheirPositionsBelong) {
  LayerCache cache(DType::kF32, 2, 1);
  EXPECT_THAT(cache.Add(std::vector<int32_t>{2, 5}), ElementsAre(0, 1));
  EXPECT_THAT(cache.Add(std::vector<int32_t>{7}), ElementsAre(2));
  EXPECT_THAT(cache.Add(std::vector<int32_t>{0, 6, 9}), ElementsAre(0, 3, 5));
  EXPECT_THAT(List(cache.positions()), ElementsAre(0, 2, 5, 6, 7, 9));
  EXPECT_THROW(cache.Add(std::vector<int32_t>{9}), CheckFailure);
  cache.Keep(std::vector{TokenSet::Of({0, 5}, 6), TokenSet::Of({1, 5}, 6)});
  EXPECT_THAT(cache.Add(std::vector<int32_t>{11}), ElementsAre(2));
  EXPECT_THAT(List(cache.positions(1)), ElementsAre(2, 9, 11));
}

TEST(LayerCache, KeepsOneSetForAllHeads) {
  LayerCache cache = Ramp(20);
  cache.Keep(std::vector{TokenSet::All(20)});
  EXPECT_EQ(cache.rows(), 20);
  cache.Keep(std::vector{TokenSet::Of({0, 1, 4, 5, 6, 19}, 20)});
  EXPECT_FALSE(cache.ragged());
  EXPECT_THAT(List(cache.positions(1)), ElementsAre(0, 1, 4, 5, 6, 19));
  EXPECT_THAT(cache.position_lists(), testing::SizeIs(1));
  ExpectConsistent(cache);
  Append(cache, {20});
  cache.Keep(std::vector{TokenSet::None(7)});
  EXPECT_EQ(cache.rows(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  Append(cache, {0, 21});
  ExpectConsistent(cache);
}

TEST(LayerCache, KeepsASetPerHead) {
  LayerCache cache = Ramp(6);
  cache.Keep(std::vector{TokenSet::Of({0, 2, 5}, 6), TokenSet::Of({1, 2, 3}, 6)});
  ASSERT_TRUE(cache.ragged());
  EXPECT_EQ(cache.rows(), 3);
  EXPECT_THAT(List(cache.positions(0)), ElementsAre(0, 2, 5));
  EXPECT_THAT(List(cache.positions(1)), ElementsAre(1, 2, 3));
  ASSERT_EQ(cache.position_lists().size(), 2u);
  EXPECT_THAT(List(cache.position_lists()[1]), ElementsAre(1, 2, 3));
  ExpectConsistent(cache);
  Append(cache, {6, 7});  // generated tokens are appended to both heads
  ExpectConsistent(cache);
  EXPECT_THROW(cache.Append(std::vector<int32_t>{7}), CheckFailure);
  cache.Keep(std::vector{TokenSet::Of({1, 2, 4}, 5)});
  EXPECT_THAT(List(cache.positions(0)), ElementsAre(2, 5, 7));
  EXPECT_THAT(List(cache.positions(1)), ElementsAre(2, 3, 7));
  ExpectConsistent(cache);
  EXPECT_THROW(cache.Insert(std::vector<int32_t>{4}), CheckFailure);
  EXPECT_THROW(cache.RowsOf(std::vector<int32_t>{2}), CheckFailure);
  EXPECT_THROW(cache.SetPosition(0, 1), CheckFailure);
  cache.Keep(std::vector{TokenSet::Of({0, 2}, 3), TokenSet::Of({0, 2}, 3)});
  EXPECT_FALSE(cache.ragged());  // the heads hold the same positions again
  EXPECT_THAT(List(cache.positions(1)), ElementsAre(2, 7));
  ExpectConsistent(cache);
}

TEST(LayerCache, RefusesSetsOfOtherSizes) {
  LayerCache cache = Ramp(6);
  EXPECT_THROW(cache.Keep(std::vector{TokenSet::All(5)}), CheckFailure);
  EXPECT_THROW(cache.Keep(std::vector{TokenSet::Of({0}, 6), TokenSet::Of({0, 1}, 6)}), CheckFailure);
  EXPECT_THROW(cache.Keep(std::vector<TokenSet>(3, TokenSet::Of({0}, 6))), CheckFailure);
  EXPECT_THROW(cache.Keep({}), CheckFailure);
  EXPECT_EQ(cache.rows(), 6);
}

TEST(LayerCache, FindsRowsOfPositions) {
  LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
  EXPECT_TRUE(cache.RowsOf(std::vector<int32_t>{1}).empty());
  Append(cache, {2, 3, 5, 8, 9});
  EXPECT_THAT(cache.RowsOf(std::vector<int32_t>{0, 2, 4, 5, 6, 9, 10, 11}), ElementsAre(0, 2, 4));
  EXPECT_THAT(cache.RowsOf(std::vector<int32_t>{2, 3, 5, 8, 9}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(cache.RowsOf({}).empty());
}

TEST(LayerCache, SetsPositionsInOrder) {
  LayerCache cache = Ramp(3);
  cache.SetPosition(2, 7);
  cache.SetPosition(1, 6);
  EXPECT_THAT(List(cache.positions()), ElementsAre(0, 6, 7));
  EXPECT_THROW(cache.SetPosition(1, 7), CheckFailure);
  EXPECT_THROW(cache.SetPosition(1, 0), CheckFailure);
  EXPECT_THROW(cache.SetPosition(3, 9), CheckFailure);
}

// Long runs of every operation, against a map from positions to presence.
TEST(LayerCache, RandomOperationsAgreeWithAModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    LayerCache cache(DType::kF32, kCacheHeads, kCacheDim);
    std::vector<int32_t> model;
    for (int step = 0; step < 40; ++step) {
      std::vector<int32_t> picked;
      const int kind = static_cast<int>(random() % 3);
      if (kind == 0) {  // append
        int32_t next = model.empty() ? 0 : model.back() + 1;
        for (uint32_t i = 0; i < 1 + random() % 8; ++i)
          picked.push_back(next += static_cast<int32_t>(random() % 5) + 1);
        Append(cache, picked);
      } else if (kind == 1) {  // insert
        for (int32_t p = 0; p < 60; ++p) {
          if (random() % 4 == 0 && !std::binary_search(model.begin(), model.end(), p)) picked.push_back(p);
        }
        Insert(cache, picked);
      } else {  // keep
        std::vector<int32_t> rows, left;
        for (size_t i = 0; i < model.size(); ++i) {
          if (random() % 4 == 0) continue;
          rows.push_back(static_cast<int32_t>(i));
          left.push_back(model[i]);
        }
        cache.Keep(std::vector{TokenSet::Of(rows, cache.rows())});
        model = left;
      }
      model.insert(model.end(), picked.begin(), picked.end());
      std::sort(model.begin(), model.end());
      ASSERT_EQ(List(cache.positions()), model);
      ASSERT_NO_FATAL_FAILURE(ExpectConsistent(cache));
    }
  }
}

}  // namespace
}  // namespace coppice
