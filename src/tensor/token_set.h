// A set of rows of the current stream; pruning methods return their selections as token sets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

// A half-open range of positions, [begin, end).
struct PositionSpan {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const PositionSpan&, const PositionSpan&) = default;
};

// Rows of [0, universe), ascending and unique by construction. "All" is a flag, so a policy that keeps
// everything pays nothing.
class TokenSet {
 public:
  static TokenSet All(int64_t universe);
  static TokenSet None(int64_t universe);
  // [begin, end) clamped to the universe
  static TokenSet Range(int64_t begin, int64_t end, int64_t universe);
  // Sorts and removes duplicates; every row must lie in [0, universe).
  static TokenSet Of(std::vector<int32_t> rows, int64_t universe);

  bool IsAll() const { return all_; }
  int64_t universe() const { return universe_; }
  int64_t size() const { return all_ ? universe_ : static_cast<int64_t>(rows_.size()); }
  bool Contains(int64_t row) const;
  // The rows, ascending. For "all" this builds the list.
  std::vector<int32_t> ToRows() const;
  // The rows without a copy. Must not be called on "all".
  std::span<const int32_t> rows() const;

  TokenSet Intersect(const TokenSet& other) const;
  TokenSet Union(const TokenSet& other) const;
  TokenSet UnionFirst(int64_t count) const;  // union with [0, count)
  TokenSet UnionLast(int64_t count) const;   // union with the last `count` rows
  // Adds `offset` to every row, in a new universe of size `universe`.
  TokenSet Shift(int64_t offset, int64_t universe) const;

  friend bool operator==(const TokenSet& a, const TokenSet& b);

 private:
  TokenSet(bool all, int64_t universe, std::vector<int32_t> rows);
  bool all_;
  int64_t universe_;
  std::vector<int32_t> rows_;  // empty when all_
};

}  // namespace coppice
