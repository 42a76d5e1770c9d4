#include "comm/deal.h"

#include <algorithm>

#include "base/check.h"

namespace coppice {

namespace {

// Pieces of large tiles begin at multiples of this, so that kernels that take many rows at a time have few
// left over. At most 8 rows of a piece change hands for it.
constexpr int64_t kUnit = 16;
constexpr int64_t kLargeTile = 256;

}  // namespace

Deal::Deal(int64_t rows, int processes, int64_t tile_rows) : processes_(processes) {
  COPPICE_CHECK(rows >= 0 && processes > 0 && tile_rows > 0);
  if (processes == 1) {
    bounds_ = {0, rows};
    return;
  }
  const int64_t unit = tile_rows >= kLargeTile ? kUnit : 1;
  const int64_t most =
      (tile_rows - unit / 2) / unit * unit;  // rounding may add half a unit to the last piece
  const int64_t two_rounds = 2 * int64_t{processes};
  const int64_t pieces =
      two_rounds * std::max<int64_t>(1, (rows + two_rounds * most - 1) / (two_rounds * most));
  bounds_.clear();
  // Rounding must not leave the last piece empty, because the last row is process 0's.
  const int64_t last = std::max<int64_t>(rows - 1, 0);
  for (int64_t i = 0; i < pieces; ++i)
    bounds_.push_back(std::min((rows * i / pieces + unit / 2) / unit * unit, last));
  bounds_.push_back(rows);
}

RowRange Deal::Piece(int round, int process) const {
  const int of_round = round % 2 == 0 ? process : processes_ - 1 - process;
  const auto piece = static_cast<size_t>(round * processes_ + of_round);
  return {bounds_[piece], bounds_[piece + 1] - bounds_[piece]};
}

std::vector<RowRange> Deal::Round(int round) const {
  std::vector<RowRange> pieces;
  for (int p = 0; p < processes_; ++p) pieces.push_back(Piece(round, p));
  return pieces;
}

std::vector<int> Deal::Owners() const {
  std::vector<int> owners(static_cast<size_t>(rows()));
  for (int round = 0; round < rounds(); ++round) {
    for (int p = 0; p < processes_; ++p) {
      const RowRange piece = Piece(round, p);
      std::fill_n(owners.begin() + piece.begin, piece.count, p);
    }
  }
  return owners;
}

}  // namespace coppice
