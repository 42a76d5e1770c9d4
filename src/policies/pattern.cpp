#include "policies/pattern.h"

#include <algorithm>

#include "base/check.h"

namespace coppice {

int64_t BlockGrid::LastDiagonal(int64_t b) const {
  return (std::min(offset() + (b + 1) * block, keys) - 1) / block;
}

BlockGrid::Place BlockGrid::PlaceOf(int64_t diagonal) const {
  // On this diagonal, row x of query block b reads key row (b + first) * block + into + x. The last `into`
  // rows therefore read the next key block.
  const int64_t start = offset() - diagonal;
  const int64_t first = start >= 0 ? start / block : -((-start + block - 1) / block);
  const int64_t into = start - first * block;
  return {first, static_cast<double>(into) / block};
}

BlockGrid GridOf(const AttentionInput& in, int block) {
  COPPICE_CHECK(block > 0 && in.queries.rows <= in.keys.rows);
  return {.queries = in.queries.rows, .keys = in.keys.rows, .block = block};
}

bool StaysDense(const AttentionScene& scene, const BlockGrid& grid) {
  return scene.phase != Phase::kPrefill || scene.pruned || grid.first_dense() == 0;
}

SparsePattern PatternOn(const BlockGrid& grid, int heads) {
  SparsePattern pattern{.query_block = grid.block, .key_block = grid.block, .heads = {}};
  pattern.heads.resize(static_cast<size_t>(heads));
  return pattern;
}

std::vector<int32_t> KeyBlocksOf(const BlockGrid& grid, int64_t b, std::span<const uint8_t> chosen) {
  COPPICE_CHECK(static_cast<int64_t>(chosen.size()) == grid.key_blocks());
  const bool dense = b >= grid.first_dense();
  const int64_t diagonal = grid.FirstDiagonal(b);
  std::vector<int32_t> blocks;
  for (int64_t j = 0; j <= grid.LastDiagonal(b); ++j) {
    if (dense || j >= diagonal || chosen[static_cast<size_t>(j)] != 0)
      blocks.push_back(static_cast<int32_t>(j));
  }
  return blocks;
}

AttentionInput OneHead(const AttentionInput& in, int head) {
  const int64_t c = in.shape.head_dim;
  AttentionInput one = in;
  one.shape = in.shape.OfHeads(head, 1, 1);
  one.queries = in.queries.Cols(head * c, c);
  one.keys = in.keys.Cols(head / (in.shape.heads / in.shape.kv_heads) * c, c);
  one.values = {};
  return one;
}

LineMass MassOfLines(const AttentionInput& head, int64_t queries, Backend& be) {
  const int64_t n = head.keys.rows;
  const int64_t m = std::min(queries, head.queries.rows);
  AttentionInput last = head;
  last.queries = head.queries.Rows(head.queries.rows - m, m);
  last.query_positions = head.query_positions.last(static_cast<size_t>(m));
  Tensor weights(DType::kF32, m, n);
  be.AttentionWeights(last, weights.mutable_view());

  LineMass mass{.columns = std::vector<float>(static_cast<size_t>(n), 0.0f),
                .diagonals = std::vector<float>(static_cast<size_t>(n), 0.0f)};
  for (int64_t i = 0; i < m; ++i) {
    const float* a = weights.view().Row<float>(i).data();
    float* columns = mass.columns.data();
    // Indexed by n - 1 - d until the loop ends, so that the sums run in the direction of the row.
    float* diagonals = mass.diagonals.data() + (m - 1 - i);
    const int64_t seen = n - m + i + 1;
    for (int64_t j = 0; j < seen; ++j) columns[j] += a[j];
    for (int64_t j = 0; j < seen; ++j) diagonals[j] += a[j];
  }
  std::reverse(mass.diagonals.begin(), mass.diagonals.end());
  for (float& x : mass.columns) x /= static_cast<float>(m);
  for (float& x : mass.diagonals) x /= static_cast<float>(m);
  return mass;
}

Tensor MeanRows(const TensorView& rows, int block, Backend& be) {
  Tensor means(DType::kF32, (rows.rows + block - 1) / block, rows.cols);
  be.MeanRows(rows, block, means.mutable_view());
  return means;
}

namespace {

// A block's middle lies within it, so the middles of blocks ascend strictly.
std::vector<int32_t> MiddlesOf(std::span<const int32_t> positions, int block) {
  std::vector<int32_t> middles;
  for (size_t begin = 0; begin < positions.size(); begin += static_cast<size_t>(block)) {
    const size_t last = std::min(begin + static_cast<size_t>(block), positions.size()) - 1;
    middles.push_back(positions[begin] + (positions[last] - positions[begin]) / 2);
  }
  return middles;
}

}  // namespace

MeanKeys MeanKeysOf(const AttentionInput& head, int block, Backend& be) {
  const Tensor means = MeanRows(head.keys, block, be);
  MeanKeys keys{.keys = Tensor(head.keys.dtype, means.rows(), means.cols()),
                .positions = MiddlesOf(head.key_positions, block)};
  be.Convert(means.view(), keys.keys.mutable_view());
  return keys;
}

Tensor PooledMap(const AttentionInput& head, const TensorView& queries, const MeanKeys& keys, int block,
                 Backend& be) {
  const std::vector<int32_t> positions = MiddlesOf(head.query_positions, block);
  AttentionInput pooled = head;
  pooled.queries = queries;
  pooled.keys = keys.keys.view();
  pooled.query_positions = positions;
  pooled.key_positions = keys.positions;
  Tensor map(DType::kF32, queries.rows, keys.keys.rows());
  be.AttentionWeights(pooled, map.mutable_view());
  return map;
}

}  // namespace coppice
