#include "kv/cold_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "kv/cold_test_support.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kHeads = 2;
constexpr int kDim = 4;
constexpr int kBlock = 8;
constexpr int kLayers = 3;
constexpr int64_t kRowBytes = 2 * kHeads * kDim * 2;  // a key and a value in bf16

// The bits of the key (half 0) or value (half 1) of a position in a layer. They include NaNs.
uint16_t Bits(int layer, int32_t position, int64_t channel, int half) {
  const auto seed = static_cast<uint32_t>((layer * 4096 + position) * 64 + channel * 2 + half);
  return static_cast<uint16_t>((seed * 2654435761u) >> 13);
}

void FillRow(LayerCache& cache, int layer, int64_t row, int32_t position) {
  for (int64_t c = 0; c < cache.width(); ++c) {
    cache.mutable_keys().Row<BF16>(row)[c].bits = Bits(layer, position, c, 0);
    cache.mutable_values().Row<BF16>(row)[c].bits = Bits(layer, position, c, 1);
  }
}

void Add(LayerCache& cache, int layer, const std::vector<int32_t>& positions) {
  const std::vector<int32_t> rows = cache.Insert(positions);
  for (size_t i = 0; i < rows.size(); ++i) FillRow(cache, layer, rows[i], positions[i]);
}

// Checks that the rows hold, bit for bit, what was written for their positions.
void ExpectHot(const LayerCache& cache, int layer, const std::vector<int32_t>& positions) {
  ASSERT_EQ(std::vector<int32_t>(cache.positions().begin(), cache.positions().end()), positions);
  for (int64_t i = 0; i < cache.rows(); ++i) {
    for (int64_t c = 0; c < cache.width(); ++c) {
      ASSERT_EQ(cache.keys().Row<BF16>(i)[c].bits, Bits(layer, positions[i], c, 0)) << "row " << i;
      ASSERT_EQ(cache.values().Row<BF16>(i)[c].bits, Bits(layer, positions[i], c, 1)) << "row " << i;
    }
  }
}

std::vector<int32_t> Iota(int32_t begin, int32_t end) {
  std::vector<int32_t> list(end - begin);
  std::iota(list.begin(), list.end(), begin);
  return list;
}

LayerCache NewHot() { return LayerCache(DType::kBF16, kHeads, kDim); }

class ColdCacheTest : public ColdEngineTest {
 protected:
  // With room for only five staged records, so that writes must wait too.
  ColdCache NewCold() { return ColdCache(Open(kBlock * kRowBytes, 5 * kBlock * kRowBytes), kLayers, kBlock); }
};
INSTANTIATE_TEST_SUITE_P(Engines, ColdCacheTest, testing::ValuesIn(kEngines),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(ColdCacheTest, ABlockComesBackByteForByte) {
  ColdCache cold = NewCold();
  LayerCache hot = NewHot();
  Add(hot, 1, Iota(0, 30));  // the last block is partial
  cold.Offload(1, std::vector<int32_t>{1, 3}, hot);
  std::vector<int32_t> left = Iota(0, 8);
  for (const int32_t p : Iota(16, 24)) left.push_back(p);
  ExpectHot(hot, 1, left);
  EXPECT_TRUE(cold.IsCold(1, 1) && cold.IsCold(1, 3));
  EXPECT_FALSE(cold.IsCold(1, 0) || cold.IsCold(1, 2) || cold.IsCold(0, 1) || cold.IsCold(1, 99));
  std::vector<int32_t> gone = Iota(8, 16);
  for (const int32_t p : Iota(24, 30)) gone.push_back(p);
  EXPECT_EQ(cold.ColdPositions(1), gone);
  EXPECT_THAT(cold.ColdPositions(0), IsEmpty());
  EXPECT_EQ(cold.bytes(), 14 * kRowBytes);
  EXPECT_EQ(cold.blocks_written(), 2);

  cold.Prefetch(1, std::vector<int32_t>{0, 1});  // block 0 is hot, so this does not read it
  cold.Prefetch(1, std::vector<int32_t>{1});
  cold.Load(1, std::vector<int32_t>{0, 1, 2, 3, 7}, hot);
  ExpectHot(hot, 1, Iota(0, 30));
  EXPECT_EQ(cold.bytes(), 0);
  EXPECT_EQ(cold.blocks_loaded(), 2);
  EXPECT_THAT(cold.ColdPositions(1), IsEmpty());
}

TEST_P(ColdCacheTest, ABlockIsWrittenOnce) {
  ColdCache cold = NewCold();
  LayerCache hot = NewHot();
  Add(hot, 0, Iota(0, 32));
  for (int round = 0; round < 5; ++round) {
    cold.Offload(0, std::vector<int32_t>{0, 2}, hot);
    cold.Load(0, std::vector<int32_t>{0, 2}, hot);
  }
  EXPECT_EQ(cold.blocks_written(), 2);
  EXPECT_EQ(cold.blocks_loaded(), 10);
  ExpectHot(hot, 0, Iota(0, 32));
}

TEST_P(ColdCacheTest, ABlockThatGainedTokensIsWrittenAnew) {
  ColdCache cold = NewCold();
  LayerCache hot = NewHot();
  Add(hot, 0, {0, 1, 9, 11, 16});
  cold.Offload(0, std::vector<int32_t>{1}, hot);
  cold.Load(0, std::vector<int32_t>{1}, hot);
  Add(hot, 0, {10, 12});  // these tokens came back
  cold.Offload(0, std::vector<int32_t>{1}, hot);
  EXPECT_EQ(cold.blocks_written(), 2);
  EXPECT_THAT(cold.ColdPositions(0), ElementsAre(9, 10, 11, 12));
  Add(hot, 0, {8, 13});  // these came back while the rest of the block is cold
  EXPECT_TRUE(cold.IsCold(0, 1));
  cold.Offload(0, std::vector<int32_t>{1}, hot);
  EXPECT_EQ(cold.blocks_written(), 3);
  EXPECT_THAT(cold.ColdPositions(0), ElementsAre(8, 9, 10, 11, 12, 13));
  EXPECT_EQ(cold.bytes(), 6 * kRowBytes);
  ExpectHot(hot, 0, {0, 1, 16});
  cold.Offload(0, std::vector<int32_t>{1}, hot);  // no row of the block is hot, so this does nothing
  Add(hot, 0, {14});
  cold.Load(0, std::vector<int32_t>{1}, hot);  // inserts around a row of the block that is hot
  ExpectHot(hot, 0, {0, 1, 8, 9, 10, 11, 12, 13, 14, 16});
  EXPECT_EQ(cold.blocks_written(), 3);
}

TEST_P(ColdCacheTest, BlocksWithoutRowsAreLeftAlone) {
  ColdCache cold = NewCold();
  LayerCache hot = NewHot();
  cold.Offload(0, std::vector<int32_t>{0, 1}, hot);
  cold.Offload(0, {}, hot);
  Add(hot, 0, {3, 20});
  cold.Offload(0, std::vector<int32_t>{1, 5}, hot);
  cold.Load(0, std::vector<int32_t>{1, 5}, hot);
  EXPECT_FALSE(cold.IsCold(0, 1));
  EXPECT_EQ(cold.blocks_written() + cold.blocks_loaded() + cold.bytes(), 0);
  ExpectHot(hot, 0, {3, 20});
  cold.Offload(0, std::vector<int32_t>{0, 1, 2}, hot);  // everything
  ExpectHot(hot, 0, {});
  cold.Load(0, std::vector<int32_t>{0, 1, 2}, hot);
  ExpectHot(hot, 0, {3, 20});
}

TEST_P(ColdCacheTest, RefusesHeadsOfDifferentPositions) {
  ColdCache cold = NewCold();
  LayerCache hot = NewHot();
  Add(hot, 0, Iota(0, 4));
  hot.Keep(std::vector{TokenSet::Of({0, 1}, 4), TokenSet::Of({1, 2}, 4)});
  EXPECT_THROW(cold.Offload(0, std::vector<int32_t>{0}, hot), CheckFailure);
}

TEST_P(ColdCacheTest, AFailedReadLeavesTheHotCacheAsItWas) {
  FileHandle file = OpenUnnamedFile(folder_.path(), false);
  const FileHandle behind(dup(file.get()));
  auto store = OpenOver(std::move(file), kBlock * kRowBytes);
  RecordStore& watched = *store;
  ColdCache cold(std::move(store), kLayers, kBlock);
  LayerCache hot = NewHot();
  Add(hot, 0, Iota(0, 32));
  cold.Offload(0, std::vector<int32_t>{0, 1, 2}, hot);
  watched.Flush();
  ASSERT_EQ(ftruncate(behind.get(), 2 * kBlock * kRowBytes), 0);
  EXPECT_THROW(cold.Load(0, std::vector<int32_t>{0, 1, 2}, hot), Error);
  ExpectHot(hot, 0, Iota(24, 32));
  EXPECT_EQ(cold.bytes(), 24 * kRowBytes);
}

// Which positions of each layer are in memory and which are cold, as plain sets.
struct PlainCopy {
  using Positions = std::set<int32_t>;
  std::vector<Positions> hot{kLayers}, cold{kLayers};
  std::map<std::pair<int, int32_t>, Positions> record;  // by layer and block: the last record written
  int64_t written = 0, loaded = 0;

  static Positions OfBlock(const Positions& positions, int32_t b) {
    return {positions.lower_bound(b * kBlock), positions.lower_bound((b + 1) * kBlock)};
  }
  void Offload(int l, int32_t b) {
    const Positions out = OfBlock(hot[l], b);
    if (out.empty()) return;
    if (!OfBlock(cold[l], b).empty()) ++loaded;  // to be merged
    for (const int32_t p : out) hot[l].erase(p), cold[l].insert(p);
    Positions& last = record[{l, b}];
    const Positions now = OfBlock(cold[l], b);
    if (last != now) ++written;
    last = now;
  }
  void Load(int l, int32_t b) {
    const Positions in = OfBlock(cold[l], b);
    if (!in.empty()) ++loaded;
    for (const int32_t p : in) cold[l].erase(p), hot[l].insert(p);
  }
};

// Random offloads, prefetches, loads and returning tokens in several layers, against a plain copy. Every
// engine runs the same sequence, so asynchronous results equal synchronous ones.
TEST_P(ColdCacheTest, RandomSwapsAgreeWithAPlainCopy) {
  constexpr int32_t kBlocks = 12;
  std::mt19937 random(9);
  ColdCache cold = NewCold();
  std::vector<LayerCache> hot;
  PlainCopy plain;
  for (int l = 0; l < kLayers; ++l) {
    hot.push_back(NewHot());
    std::vector<int32_t> positions;
    for (int32_t p = 0; p < kBlocks * kBlock - 3; ++p) {
      if (random() % 3 != 0) positions.push_back(p);
    }
    Add(hot[l], l, positions);
    plain.hot[l].insert(positions.begin(), positions.end());
  }
  for (int step = 0; step < 1500; ++step) {
    const int l = static_cast<int>(random() % kLayers);
    std::vector<int32_t> blocks;
    for (int32_t b = 0; b < kBlocks; ++b) {
      if (random() % 4 == 0) blocks.push_back(b);
    }
    switch (random() % 4) {
      case 0:
        cold.Offload(l, blocks, hot[l]);
        for (const int32_t b : blocks) plain.Offload(l, b);
        break;
      case 1:
        cold.Load(l, blocks, hot[l]);
        for (const int32_t b : blocks) plain.Load(l, b);
        break;
      case 2:
        cold.Prefetch(l, blocks);
        break;
      default: {
        const int32_t p = static_cast<int32_t>(random() % (kBlocks * kBlock));
        if (random() % 4 != 0 || plain.hot[l].contains(p) || plain.cold[l].contains(p)) break;
        Add(hot[l], l, {p});
        plain.hot[l].insert(p);
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectHot(hot[l], l, {plain.hot[l].begin(), plain.hot[l].end()}))
        << "step " << step;
    ASSERT_THAT(cold.ColdPositions(l), testing::ElementsAreArray(plain.cold[l]));
  }
  int64_t tokens = 0;
  for (const auto& positions : plain.cold) tokens += static_cast<int64_t>(positions.size());
  EXPECT_EQ(cold.bytes(), tokens * kRowBytes);
  EXPECT_EQ(cold.blocks_written(), plain.written);
  EXPECT_EQ(cold.blocks_loaded(), plain.loaded);
  EXPECT_GT(plain.written, 0);
}

}  // namespace
}  // namespace coppice
