#include "kernels/sparse_pattern.h"

#include <algorithm>

namespace coppice {

std::vector<int32_t> KeysOf(const SparsePattern& pattern, int head, int64_t block, int64_t keys) {
  const SparsePattern::Head& of = pattern.heads[static_cast<size_t>(head)];
  std::vector<int32_t> rows;
  for (const int32_t j :
       of.key_blocks.empty() ? std::vector<int32_t>{} : of.key_blocks[static_cast<size_t>(block)]) {
    const int64_t end = std::min<int64_t>((int64_t{j} + 1) * pattern.key_block, keys);
    for (int64_t row = int64_t{j} * pattern.key_block; row < end; ++row)
      rows.push_back(static_cast<int32_t>(row));
  }
  std::vector<int32_t> columns;
  for (const int32_t c : of.columns) {
    if (c < keys) columns.push_back(c);
  }
  std::vector<int32_t> all;
  std::set_union(rows.begin(), rows.end(), columns.begin(), columns.end(), std::back_inserter(all));
  return all;
}

double PatternDensity(const SparsePattern& pattern, int64_t queries, int64_t keys) {
  if (pattern.empty() || queries == 0) return 1;
  double pairs = 0;
  for (size_t head = 0; head < pattern.heads.size(); ++head) {
    for (int64_t begin = 0; begin < queries; begin += pattern.query_block) {
      const std::vector<int32_t> rows =
          KeysOf(pattern, static_cast<int>(head), begin / pattern.query_block, keys);
      for (int64_t q = begin; q < std::min<int64_t>(begin + pattern.query_block, queries); ++q) {
        const auto last = static_cast<int32_t>(keys - queries + q);
        pairs += static_cast<double>(std::upper_bound(rows.begin(), rows.end(), last) - rows.begin());
      }
    }
  }
  const auto n = static_cast<double>(queries);
  const double dense = n * static_cast<double>(keys - queries) + n * (n + 1) / 2;
  return pairs / (dense * static_cast<double>(pattern.heads.size()));
}

}  // namespace coppice
