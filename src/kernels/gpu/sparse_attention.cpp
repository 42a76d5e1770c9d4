// Attention under a pattern: the lists of blocks and columns of each query block and head, as the kernel
// reads them.
#include <algorithm>
#include <vector>

#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_operands.h"

namespace coppice::gpu {

namespace {

constexpr int64_t kTileQueries = 64;

struct PatternLists {
  std::vector<int32_t> tiles;  // [tiles, 3]: first query, queries, query block in `lists`
  std::vector<int32_t> lists;  // [blocks, heads, 4]: first and number of entries in `blocks`, in `columns`
  std::vector<int32_t> blocks;
  std::vector<int32_t> columns;
  std::vector<int32_t> chosen;  // [blocks, heads, words]: bits of the listed blocks
  int64_t words = 0;
  int64_t key_block = 1;
};

// Where the columns of a head are in PatternLists::columns: the same for all of its query blocks.
struct Columns {
  int32_t first = 0;
  int32_t count = 0;
};
std::vector<Columns> AddColumns(const SparsePattern& pattern, int64_t keys, PatternLists& lists) {
  std::vector<Columns> of_heads;
  for (const SparsePattern::Head& head : pattern.heads) {
    const auto end = std::lower_bound(head.columns.begin(), head.columns.end(), keys);
    of_heads.push_back(
        {static_cast<int32_t>(lists.columns.size()), static_cast<int32_t>(end - head.columns.begin())});
    lists.columns.insert(lists.columns.end(), head.columns.begin(), end);
  }
  return of_heads;
}

// A column that lies in a listed block counts once, which the kernel finds out with the bits of `chosen`.
void AddBlocks(const SparsePattern& pattern, const SparsePattern::Head& head, int64_t block, int64_t keys,
               PatternLists& lists) {
  const auto first_block = static_cast<int32_t>(lists.blocks.size());
  const size_t first_word = lists.chosen.size();
  lists.chosen.resize(first_word + static_cast<size_t>(lists.words));
  if (!head.key_blocks.empty()) {
    for (const int32_t j : head.key_blocks[static_cast<size_t>(block)]) {
      if (int64_t{j} * pattern.key_block >= keys) break;
      lists.blocks.push_back(j);
      auto& word = lists.chosen[first_word + static_cast<size_t>(j / 32)];
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | uint32_t{1} << (j % 32));
    }
  }
  lists.lists.insert(lists.lists.end(),
                     {first_block, static_cast<int32_t>(lists.blocks.size()) - first_block});
}

PatternLists ListsOf(const SparsePattern& pattern, int64_t first_query, int64_t queries, int64_t keys) {
  PatternLists lists;
  lists.key_block = std::max(pattern.key_block, 1);
  const bool blocks =
      std::ranges::any_of(pattern.heads, [](const auto& head) { return !head.key_blocks.empty(); });
  if (blocks) lists.words = CeilDiv(CeilDiv(keys, lists.key_block), 32);
  const std::vector<Columns> columns = AddColumns(pattern, keys, lists);
  for (int64_t row = 0; row < queries;) {
    const int64_t block = (first_query + row) / pattern.query_block;
    const int64_t end = std::min(queries, (block + 1) * pattern.query_block - first_query);
    const auto index = static_cast<int32_t>(lists.lists.size() / 4 / pattern.heads.size());
    for (size_t head = 0; head < pattern.heads.size(); ++head) {
      AddBlocks(pattern, pattern.heads[head], block, keys, lists);
      lists.lists.insert(lists.lists.end(), {columns[head].first, columns[head].count});
    }
    for (; row < end; row += kTileQueries) {
      lists.tiles.insert(lists.tiles.end(), {static_cast<int32_t>(row),
                                             static_cast<int32_t>(std::min(kTileQueries, end - row)), index});
    }
    row = end;
  }
  return lists;
}

}  // namespace

void SparseAttention(Gpu& gpu, const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                     MutableTensorView out) {
  if (pattern.empty()) return Attention(gpu, in, out);
  if (in.queries.rows == 0) return;
  Operands op(gpu);
  AttentionOperands a(gpu, op, in, true);
  const Operands::Place y = op.Out(out);
  a.aligned = a.aligned && IsAligned(y, 4);
  const PatternLists lists = ListsOf(pattern, first_query, a.m, a.n);
  gpu.kernels().Launch(a.Variant("sparse_attention", false), {std::ssize(lists.tiles) / 3, a.heads},
                       a.q.address, a.k.address, a.v.address, a.query_positions, a.key_positions,
                       op.List(lists.tiles), op.List(lists.lists), op.List(lists.blocks),
                       op.List(lists.columns), op.List(lists.chosen), a.slopes, y.address, a.m, a.n, a.group,
                       a.head_dim, a.q.stride, a.k.stride, a.v.stride, y.stride, lists.words, lists.key_block,
                       a.window, a.scale);
  op.Finish();
}

}  // namespace coppice::gpu
