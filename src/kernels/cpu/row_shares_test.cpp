#include "kernels/cpu/row_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/threads.h"

namespace coppice {
namespace {

using cpu::RowRange;
using cpu::RowShares;

TEST(RowShares, AThreadTakesItsShareInOrderAndThenTheOthers) {
  RowShares shares(2);
  EXPECT_EQ(shares.Split(10, 2), 6);  // 2 2 1 of each half
  std::vector<int64_t> begins;
  for (int i = 0; i < 3; ++i) begins.push_back(shares.Take(1).begin);
  EXPECT_EQ(begins, (std::vector<int64_t>{5, 7, 9}));
  EXPECT_EQ(shares.Take(0).begin, 0);
  EXPECT_EQ(shares.Take(1).begin, 2);  // its own share is used up
  const RowRange last = shares.Take(1);
  EXPECT_EQ(last.begin, 4);
  EXPECT_EQ(last.end, 5);
  for (int thread : {0, 1}) EXPECT_EQ(shares.Take(thread).end, 0);
}

TEST(RowShares, WhatOnePieceHoldsIsNotSplit) {
  RowShares shares(4);
  EXPECT_EQ(shares.Split(16, 16), 1);
  const RowRange all = shares.Take(3);
  EXPECT_EQ(all.begin, 0);
  EXPECT_EQ(all.end, 16);
  EXPECT_EQ(shares.Split(0, 16), 0);
}

// One call per piece takes every row once, whichever thread makes it, and one object serves many loops.
TEST(RowShares, EveryRowIsTakenOnce) {
  const ThreadPool pool(3);
  RowShares shares(pool.size());
  for (int64_t rows : {1, 2, 3, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 16, 2000}) {
      std::vector<int> taken(static_cast<size_t>(rows));
      pool.For(shares.Split(rows, grain), 1, [&](int64_t, int64_t, int thread) {
        const RowRange piece = shares.Take(thread);
        EXPECT_LE(piece.end - piece.begin, grain);
        for (int64_t i = piece.begin; i < piece.end; ++i) ++taken[static_cast<size_t>(i)];
      });
      EXPECT_EQ(taken, std::vector<int>(static_cast<size_t>(rows), 1)) << rows << " by " << grain;
    }
  }
}

}  // namespace
}  // namespace coppice
