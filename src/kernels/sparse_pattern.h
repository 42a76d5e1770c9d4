// The keys that the queries of one layer attend, where that is not all of them.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice {

// For each query head, the pattern selects keys per block of queries: whole blocks of keys, and single
// columns that every query of the head sees. A query never sees keys beyond its position, whatever the
// pattern contains, and must see at least one (patterns keep the diagonal).
struct SparsePattern {
  struct Head {
    std::vector<int32_t> columns;                  // cache rows, ascending
    std::vector<std::vector<int32_t>> key_blocks;  // [query blocks], each ascending
  };
  int query_block = 0;      // block b holds the layer's query rows [b * query_block, (b + 1) * query_block)
  int key_block = 0;        // block j holds the cache rows [j * key_block, (j + 1) * key_block)
  std::vector<Head> heads;  // [query heads]; empty: every query sees every key up to its position

  bool empty() const { return heads.empty(); }
};

// The cache rows that query block `block` of `head` reads: the union of its columns and key blocks, ascending
// and below `keys`.
std::vector<int32_t> KeysOf(const SparsePattern& pattern, int head, int64_t block, int64_t keys);

// The share of causal query-key pairs that the pattern keeps, averaged over heads. The queries are the last
// `queries` of the `keys` cache rows; dense attention over them has queries * (keys - queries) + queries *
// (queries + 1) / 2 pairs.
double PatternDensity(const SparsePattern& pattern, int64_t queries, int64_t keys);

}  // namespace coppice
