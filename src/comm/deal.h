// Which process computes which rows of a stream.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice {

// Rows [begin, begin + count).
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The rows are cut into pieces of about equal size, dealt in zigzag: 0 1 2 | 2 1 0 | 0 1 2 | ... Causal
// attention costs a row as many keys as there are rows before it. Over two rounds every process has the same
// sum of positions, and the number of rounds is even, so all have equal work. The last row belongs to process
// 0, which goes on with it alone.
class Deal {
 public:
  Deal() = default;  // no rows
  // Pieces have at most `tile_rows` rows. A deal to one process has one round of all rows.
  Deal(int64_t rows, int processes, int64_t tile_rows);

  int processes() const { return processes_; }
  int64_t rows() const { return bounds_.back(); }
  int rounds() const { return static_cast<int>(std::ssize(bounds_) - 1) / processes_; }
  // The rows that `process` gets in `round`; may be empty.
  RowRange Piece(int round, int process) const;
  // [processes] the pieces of a round.
  std::vector<RowRange> Round(int round) const;
  // The process of each row.
  std::vector<int> Owners() const;

 private:
  int processes_ = 1;
  std::vector<int64_t> bounds_ = {0};  // [pieces + 1] ascending: where pieces begin, in order of rows
};

}  // namespace coppice
