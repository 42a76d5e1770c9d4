// Shared by the methods of sparse prefill (minference.cpp, flexprefill.cpp, xattention.cpp,
// flashprefill.cpp): a layer's
// attention in blocks, and estimates of the softmax mass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "policies/policy.h"

namespace coppice {

// The last rows of the prompt always attend every key, so that other methods get the scores of dense
// attention from them.
inline constexpr int64_t kDenseRows = 128;

// A layer's queries and keys in blocks of one size. Queries are the last rows: query row i is key row
// offset() + i.
struct BlockGrid {
  int64_t queries = 0;
  int64_t keys = 0;
  int block = 1;

  int64_t offset() const { return keys - queries; }
  int64_t query_blocks() const { return (queries + block - 1) / block; }
  int64_t key_blocks() const { return (keys + block - 1) / block; }
  // The first query block with one of the last kDenseRows rows.
  int64_t first_dense() const { return queries > kDenseRows ? (queries - kDenseRows) / block : 0; }
  // The key blocks [first, last] with the rows of query block b: two if the offset is not a multiple of the
  // block.
  int64_t FirstDiagonal(int64_t b) const { return (offset() + b * block) / block; }
  int64_t LastDiagonal(int64_t b) const;

  // Diagonal d holds the pairs of query row i and key row offset() + i - d. It lies in the block diagonals
  // (key block - query block) `first` and, with the share `second_share` of its pairs, `first` + 1.
  struct Place {
    int64_t first = 0;
    double second_share = 0;
  };
  Place PlaceOf(int64_t diagonal) const;
};

BlockGrid GridOf(const AttentionInput& in, int block);

// Returns true if the layer stays dense for every method: outside prefill, after rows were dropped (few
// remain, and they were chosen because they matter), and if all query rows are dense rows.
bool StaysDense(const AttentionScene& scene, const BlockGrid& grid);

// A pattern on the grid, with empty heads.
SparsePattern PatternOn(const BlockGrid& grid, int heads);

// The key blocks of query block b: the blocks up to the diagonal that `chosen` [key blocks] marks, and the
// diagonal. For dense rows all blocks up to the diagonal.
std::vector<int32_t> KeyBlocksOf(const BlockGrid& grid, int64_t b, std::span<const uint8_t> chosen);

// Query head `head` as an input of its own, without values.
AttentionInput OneHead(const AttentionInput& in, int head);

// The share of each column and each diagonal in the softmax mass of one head's last `queries` rows: [keys]
// each, and each sums up to 1.
struct LineMass {
  std::vector<float> columns;
  std::vector<float> diagonals;  // by distance
};
LineMass MassOfLines(const AttentionInput& head, int64_t queries, Backend& be);

// Backend::MeanRows: [ceil(rows / block), cols] fp32.
Tensor MeanRows(const TensorView& rows, int block, Backend& be);

// Keys of one kv head by blocks: their means, in the type of the cache, and the middles of their positions.
struct MeanKeys {
  Tensor keys;                     // [key blocks, head_dim]
  std::vector<int32_t> positions;  // [key blocks]
};
MeanKeys MeanKeysOf(const AttentionInput& head, int block, Backend& be);

// The softmax weights of mean queries over mean keys, as if each block were a token in the block's middle:
// [query blocks, key blocks], 0 for key blocks whose middle comes after the query's. `queries` are MeanRows
// of head.queries.
Tensor PooledMap(const AttentionInput& head, const TensorView& queries, const MeanKeys& keys, int block,
                 Backend& be);

inline TensorView RowView(std::span<const float> row) {
  return {row.data(), DType::kF32, 1, static_cast<int64_t>(row.size())};
}

}  // namespace coppice
