#include "kernels/sparse_pattern.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"

namespace coppice {
namespace {

// Empty if the head has columns only.
std::span<const int32_t> BlocksOf(const SparsePattern::Head& head, int64_t block) {
  if (head.key_blocks.empty()) return {};
  COPPICE_CHECK(block >= 0 && block < static_cast<int64_t>(head.key_blocks.size()));
  return head.key_blocks[static_cast<size_t>(block)];
}

// The queries of cache rows [first, last], each of which sees itself and all rows before it. Counts their
// query-key pairs.
struct QueryRows {
  int64_t first;
  int64_t last;

  // The number of these queries that see key `row`.
  int64_t Sees(int64_t row) const { return std::max<int64_t>(0, last - std::max(first, row) + 1); }
  // Pairs with the keys [begin, end): every query sees keys up to `first`; each key after that loses one
  // query.
  int64_t SeesRange(int64_t begin, int64_t end) const {
    end = std::min(end, last + 1);
    if (begin >= end) return 0;
    const int64_t before = std::clamp(first - begin, int64_t{0}, end - begin);
    const int64_t from = std::max(begin, first);
    const int64_t after = end - begin - before;
    return before * Sees(first) + after * (Sees(from) + Sees(from + after - 1)) / 2;
  }
};

// The pairs of one head. Counts all columns as if they lay outside the blocks, then subtracts those inside.
// The time grows with the number of listed blocks; a walk over KeysOf would grow with their rows (seconds per
// layer at 128k).
class HeadPairs {
 public:
  HeadPairs(const SparsePattern& pattern, int head, int64_t keys)
      : head_(pattern.heads[static_cast<size_t>(head)]), key_block_(pattern.key_block), keys_(keys) {
    if (head_.key_blocks.empty()) return;
    first_column_.resize(static_cast<size_t>((keys + key_block_ - 1) / key_block_ + 1));
    size_t column = 0;
    for (size_t j = 0; j < first_column_.size(); ++j) {
      while (column < head_.columns.size() && head_.columns[column] < static_cast<int64_t>(j) * key_block_)
        ++column;
      first_column_[j] = column;
    }
  }

  int64_t Count(int64_t block, const QueryRows& queries) const {
    int64_t pairs = ColumnPairs(0, head_.columns.size(), queries);
    for (const int32_t j : BlocksOf(head_, block)) {
      const int64_t begin = j * key_block_;
      if (begin >= keys_) break;
      pairs += queries.SeesRange(begin, std::min(begin + key_block_, keys_));
      pairs -= ColumnPairs(first_column_[static_cast<size_t>(j)], first_column_[static_cast<size_t>(j) + 1],
                           queries);
    }
    return pairs;
  }

 private:
  // Pairs with columns [begin, end) of the list. All queries are below `keys`, so columns beyond it count
  // nothing.
  int64_t ColumnPairs(size_t begin, size_t end, const QueryRows& queries) const {
    const auto first = head_.columns.begin();
    const auto low = first + static_cast<std::ptrdiff_t>(begin);
    const auto high = first + static_cast<std::ptrdiff_t>(end);
    const auto diagonal = std::lower_bound(low, high, queries.first);
    int64_t pairs = (diagonal - low) * queries.Sees(queries.first);
    for (auto c = diagonal; c != high && *c <= queries.last; ++c) pairs += queries.Sees(*c);
    return pairs;
  }

  const SparsePattern::Head& head_;
  int64_t key_block_;
  int64_t keys_;
  std::vector<size_t> first_column_;  // [key blocks + 1]; the first column at or after the block's first row
};

}  // namespace

std::vector<int32_t> KeysOf(const SparsePattern& pattern, int head, int64_t block, int64_t keys) {
  std::vector<int32_t> rows;
  if (pattern.empty()) {
    rows.resize(static_cast<size_t>(keys));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const SparsePattern::Head& of = pattern.heads[static_cast<size_t>(head)];
  const std::span<const int32_t> blocks = BlocksOf(of, block);
  rows.reserve(blocks.size() * static_cast<size_t>(std::max(pattern.key_block, 0)) + of.columns.size());
  auto column = of.columns.begin();
  const auto add_columns = [&](int64_t end) {  // adds the remaining columns below `end`
    while (column != of.columns.end() && *column < end) rows.push_back(*column++);
  };
  for (const int32_t j : blocks) {
    const int64_t begin = int64_t{j} * pattern.key_block;
    if (begin >= keys) break;
    const int64_t end = std::min(begin + pattern.key_block, keys);
    add_columns(begin);
    const size_t before = rows.size();
    rows.resize(before + static_cast<size_t>(end - begin));
    std::iota(rows.begin() + static_cast<std::ptrdiff_t>(before), rows.end(), static_cast<int32_t>(begin));
    while (column != of.columns.end() && *column < end) ++column;
  }
  add_columns(keys);
  return rows;
}

double PatternDensity(const SparsePattern& pattern, int64_t queries, int64_t keys) {
  if (pattern.empty() || queries == 0) return 1;
  COPPICE_CHECK(queries <= keys && pattern.query_block > 0);
  int64_t pairs = 0;
  for (size_t head = 0; head < pattern.heads.size(); ++head) {
    const HeadPairs of(pattern, static_cast<int>(head), keys);
    for (int64_t begin = 0; begin < queries; begin += pattern.query_block) {
      const int64_t end = std::min<int64_t>(begin + pattern.query_block, queries);
      pairs += of.Count(begin / pattern.query_block, {keys - queries + begin, keys - queries + end - 1});
    }
  }
  const auto n = static_cast<double>(queries);
  const double dense = n * static_cast<double>(keys - queries) + n * (n + 1) / 2;
  return static_cast<double>(pairs) / (dense * static_cast<double>(pattern.heads.size()));
}

}  // namespace coppice
