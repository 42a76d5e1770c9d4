#include "kernels/sparse_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/check.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;

TEST(SparsePattern, KeysAreTheUnionOfColumnsAndBlocks) {
  SparsePattern pattern{.query_block = 4, .key_block = 3, .heads = {}};
  pattern.heads.push_back({.columns = {0, 4, 5, 9, 20, 40}, .key_blocks = {{1}, {1, 3, 6}}});
  pattern.heads.push_back({.columns = {2, 7}, .key_blocks = {}});
  pattern.heads.push_back({.columns = {}, .key_blocks = {{}, {0, 1}}});
  EXPECT_EQ(KeysOf(pattern, 0, 0, 100), (Rows{0, 3, 4, 5, 9, 20, 40}));
  EXPECT_EQ(KeysOf(pattern, 0, 1, 100), (Rows{0, 3, 4, 5, 9, 10, 11, 18, 19, 20, 40}));
  EXPECT_EQ(KeysOf(pattern, 0, 1, 20), (Rows{0, 3, 4, 5, 9, 10, 11, 18, 19}));  // the last block is partial
  EXPECT_EQ(KeysOf(pattern, 0, 1, 4), (Rows{0, 3}));
  EXPECT_EQ(KeysOf(pattern, 0, 1, 0), Rows{});
  EXPECT_EQ(KeysOf(pattern, 1, 7, 100), (Rows{2, 7}));  // no blocks: the same for every query
  EXPECT_EQ(KeysOf(pattern, 2, 0, 100), Rows{});
  EXPECT_EQ(KeysOf(pattern, 2, 1, 100), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_THROW(KeysOf(pattern, 2, 2, 100), CheckFailure);
}

TEST(SparsePattern, NoPatternIsEveryKey) {
  EXPECT_EQ(KeysOf({}, 0, 0, 3), (Rows{0, 1, 2}));
  EXPECT_EQ(PatternDensity({}, 10, 20), 1.0);
}

TEST(SparsePattern, DensityOfSmallPatterns) {
  // Four queries in blocks of two: the diagonal blocks hold 1 + 2 + 1 + 2 of 10 pairs.
  SparsePattern diagonal{
      .query_block = 2, .key_block = 2, .heads = {{.columns = {}, .key_blocks = {{0}, {1}}}}};
  EXPECT_DOUBLE_EQ(PatternDensity(diagonal, 4, 4), 0.6);
  // Column 0 adds pairs in the second block; column 3 is in a block already.
  diagonal.heads[0].columns = {0, 3};
  EXPECT_DOUBLE_EQ(PatternDensity(diagonal, 4, 4), 0.8);
  diagonal.heads.push_back({.columns = {0, 1, 2, 3}, .key_blocks = {}});  // all keys
  EXPECT_DOUBLE_EQ(PatternDensity(diagonal, 4, 4), 0.9);
  // Decode: one query and ten keys; blocks 1 and 4, and column 0.
  const SparsePattern decode{
      .query_block = 1, .key_block = 2, .heads = {{.columns = {0}, .key_blocks = {{1, 4}}}}};
  EXPECT_DOUBLE_EQ(PatternDensity(decode, 1, 10), 0.5);
}

TEST(SparsePattern, DensityCountsThePairsOfKeysOf) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int64_t keys = 1 + random() % 70;
    const int64_t queries = 1 + random() % keys;
    SparsePattern pattern;
    pattern.query_block = 1 + random() % 20;
    pattern.key_block = 1 + random() % 20;
    for (unsigned h = 0; h < 1 + random() % 3; ++h) {
      SparsePattern::Head head;
      for (int32_t j = 0; j < keys + 3; ++j) {
        if (random() % 4 == 0) head.columns.push_back(j);
      }
      if (random() % 4 > 0) {
        head.key_blocks.resize((queries + pattern.query_block - 1) / pattern.query_block);
        for (Rows& blocks : head.key_blocks) {
          for (int32_t j = 0; j < keys / pattern.key_block + 2; ++j) {
            if (random() % 3 == 0) blocks.push_back(j);
          }
        }
      }
      pattern.heads.push_back(head);
    }
    int64_t pairs = 0;
    int64_t dense = 0;
    for (size_t h = 0; h < pattern.heads.size(); ++h) {
      for (int64_t q = 0; q < queries; ++q) {
        const int64_t own = keys - queries + q;
        dense += own + 1;
        const Rows rows = KeysOf(pattern, static_cast<int>(h), q / pattern.query_block, keys);
        pairs += std::count_if(rows.begin(), rows.end(), [own](int32_t row) { return row <= own; });
      }
    }
    ASSERT_DOUBLE_EQ(PatternDensity(pattern, queries, keys), static_cast<double>(pairs) / dense) << round;
  }
}

}  // namespace
}  // namespace coppice
