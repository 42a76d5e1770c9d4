#include "comm/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace coppice {
namespace {

TEST(Deal, EveryRowHasOneProcessAndPiecesFitATile) {
  for (const int processes : {1, 2, 3, 4, 7}) {
    for (const int64_t tile : {1, 7, 64, 255, 256, 300, 768}) {
      for (const int64_t rows : {1, 2, 3, 5, 16, 17, 100, 767, 768, 769, 6144, 16384, 20001}) {
        const Deal deal(rows, processes, tile);
        EXPECT_EQ(deal.rows(), rows);
        std::vector<int> times(static_cast<size_t>(rows));
        for (int round = 0; round < deal.rounds(); ++round) {
          for (const RowRange& piece : deal.Round(round)) {
            if (processes > 1) {
              EXPECT_LE(piece.count, tile) << rows << ", " << processes;
            }
            for (int64_t row = piece.begin; row < piece.end(); ++row) ++times[static_cast<size_t>(row)];
          }
        }
        EXPECT_EQ(std::ranges::count(times, 1), rows) << rows << ", " << processes << ", " << tile;
        EXPECT_EQ(deal.Owners().back(), 0);
      }
    }
  }
}

TEST(Deal, RowsAndTheirKeysAreBalanced) {
  for (const int processes : {2, 3, 4, 8}) {
    for (const int64_t rows : {4096, 16384, 30000}) {
      const std::vector<int> owners = Deal(rows, processes, 768).Owners();
      std::vector<double> count(static_cast<size_t>(processes)), keys(static_cast<size_t>(processes));
      for (int64_t row = 0; row < rows; ++row) {
        ++count[static_cast<size_t>(owners[static_cast<size_t>(row)])];
        keys[static_cast<size_t>(owners[static_cast<size_t>(row)])] += static_cast<double>(row + 1);
      }
      const auto rows_of_all = static_cast<double>(rows);
      for (int p = 0; p < processes; ++p) {
        EXPECT_NEAR(count[static_cast<size_t>(p)] * processes / rows_of_all, 1, 0.02);
        EXPECT_NEAR(keys[static_cast<size_t>(p)] * processes / (rows_of_all * (rows_of_all + 1) / 2), 1,
                    0.02);
      }
    }
  }
}

TEST(Deal, IsAZigzag) {
  const Deal deal(8, 2, 2);
  ASSERT_EQ(deal.rounds(), 2);
  EXPECT_EQ(deal.Owners(), (std::vector<int>{0, 0, 1, 1, 1, 1, 0, 0}));
}

}  // namespace
}  // namespace coppice
