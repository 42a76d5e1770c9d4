// XAttention: block-sparse attention in prefill, scored by antidiagonals. No training; decode is dense, the
// cache stays whole.
//
// An antidiagonal of a tile of S x S query-key pairs crosses every column of the tile and every second
// diagonal, so its sum sees both kinds of pattern. With S rows side by side, the queries' in reverse,
//   s_ab = scale / S * sum_r q_{aS + S - 1 - r} . k_{bS + r}                                  (1)
// is one product over S * head_dim of N / S rows by N / S columns: 1 / S of the products q . k. Per query
// head,
//   m_bj = sum of softmax_b(s_ab), b <= a, over the strided queries and keys in block pair (b, j)   (2)
//   query block b reads the fewest key blocks that hold `threshold` of sum_j m_bj             (3)
// the first block and its own always among them. For an even S, (1) covers only odd distances: it does not
// find a diagonal that is one key wide.
//
// Time: N^2 H c / (2 S) multiply-adds per layer and (N / S)^2 H / 2 exponentials. Memory: one kv head's keys
// and kStridedTile rows of scores.
//
// ALiBi's bias is linear along an antidiagonal. Its mean is the bias between the first rows of the two groups
// of S keys, which (1) adds.
#include "policies/methods/xattention.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "policies/exp_of_negative.h"

namespace coppice {

namespace {

constexpr int64_t kStridedTile = 512;  // strided rows per product, of queries and of keys

// Adds softmax(scores) to `mass` by groups of `per_block`. A NaN among the scores makes all of it NaN.
void AddSoftmax(std::span<float> scores, int64_t per_block, double* mass) {
  float max = -std::numeric_limits<float>::infinity();
  for (const float s : scores) max = std::max(max, s);
  for (float& s : scores) s = ExpOfNegative(s - max);
  double total = 0;
  for (const float s : scores) total += s;
  const double scale = 1 / total;
  const auto n = static_cast<int64_t>(scores.size());
  for (int64_t begin = 0; begin < n; begin += per_block) {
    float sum = 0;
    for (int64_t i = begin; i < std::min(begin + per_block, n); ++i) sum += scores[static_cast<size_t>(i)];
    mass[begin / per_block] += scale * sum;
  }
}

// Rows [first, first + count) of one head, S side by side in reverse: [count / S, S * head_dim].
void StrideQueries(const TensorView& queries, int64_t first, int64_t count, int stride, Tensor& strided,
                   Backend& be) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first));
  for (auto it = rows.begin(); it != rows.end(); it += stride) std::reverse(it, it + stride);
  strided.Resize(DType::kF32, count / stride, stride * queries.cols);
  be.GatherRows(queries, rows, {strided.mutable_view().data, DType::kF32, count, queries.cols});
}

}  // namespace

StridedKeys::StridedKeys(const TensorView& keys, int stride, Backend& be)
    : stride_(stride),
      count_(keys.rows / stride),
      packs_(static_cast<size_t>((count_ + kStridedTile - 1) / kStridedTile)) {
  std::vector<int32_t> rows;
  Tensor strided;
  for (size_t t = 0; t < packs_.size(); ++t) {
    const int64_t first = static_cast<int64_t>(t) * kStridedTile;
    const int64_t count = std::min(kStridedTile, count_ - first);
    rows.resize(static_cast<size_t>(count * stride));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first * stride));
    strided.Resize(keys.dtype, count, stride * keys.cols);
    be.GatherRows(keys, rows, {strided.mutable_view().data, keys.dtype, count * stride, keys.cols});
    be.Pack(strided.view(), packs_[t]);
  }
}

void StridedKeys::Multiply(const TensorView& queries, int64_t count, Tensor& scores, Backend& be) const {
  COPPICE_CHECK(count <= count_);
  const int64_t packs = (count + kStridedTile - 1) / kStridedTile;
  scores.Resize(DType::kF32, queries.rows, std::min(packs * kStridedTile, count_));
  for (int64_t t = 0; t < packs; ++t) {
    const PackedMatrix& pack = packs_[static_cast<size_t>(t)];
    be.Product(queries, pack, {}, scores.mutable_view().Cols(t * kStridedTile, pack.outputs));
  }
}

std::vector<double> AntidiagonalMass(const AttentionInput& head, const BlockGrid& grid,
                                     const StridedKeys& keys, Backend& be) {
  const int64_t stride = keys.stride();
  COPPICE_CHECK(head.shape.heads == 1 && grid.block % stride == 0);
  const int64_t per_block = grid.block / stride;
  const int64_t blocks_per_tile = std::max<int64_t>(1, kStridedTile / per_block);
  const float scale = head.shape.scale / static_cast<float>(stride);
  const float slope = head.shape.alibi_slopes.empty() ? 0.0f : head.shape.alibi_slopes.front();
  std::vector<double> mass(static_cast<size_t>(grid.first_dense() * grid.key_blocks()), 0.0);
  Tensor queries;
  Tensor scores;
  for (int64_t first = 0; first < grid.first_dense(); first += blocks_per_tile) {
    const int64_t blocks = std::min(blocks_per_tile, grid.first_dense() - first);
    StrideQueries(head.queries, first * grid.block, blocks * grid.block, keys.stride(), queries, be);
    // Number of strided keys that begin at or before the last row of strided query a.
    const auto seen_by = [&](int64_t a) { return (grid.offset() + a * stride + stride - 1) / stride + 1; };
    keys.Multiply(queries.view(), seen_by((first + blocks) * per_block - 1), scores, be);
    for (int64_t i = 0; i < queries.rows(); ++i) {
      const int64_t a = first * per_block + i;
      const std::span<float> row = scores.mutable_view().Row<float>(i).first(static_cast<size_t>(seen_by(a)));
      for (float& s : row) s *= scale;  // (1)
      if (slope != 0) {
        const int32_t at = head.query_positions[static_cast<size_t>(a * stride)];
        for (size_t b = 0; b < row.size(); ++b)
          row[b] += slope * static_cast<float>(head.key_positions[b * static_cast<size_t>(stride)] - at);
      }
      AddSoftmax(row, per_block, mass.data() + a / per_block * grid.key_blocks());  // (2)
    }
  }
  return mass;
}

std::vector<uint8_t> ChooseBlocks(std::span<const double> mass, int64_t diagonal, double threshold) {
  const auto blocks = static_cast<int64_t>(mass.size());
  const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
  if (!(total > 0)) return std::vector<uint8_t>(mass.size(), 1);
  std::vector<uint8_t> chosen(mass.size(), 0);
  std::vector<int64_t> others;
  double sum = 0;
  for (int64_t j = 0; j < blocks; ++j) {
    if (j == 0 || j >= diagonal) {
      chosen[static_cast<size_t>(j)] = 1;
      sum += mass[static_cast<size_t>(j)];
    } else {
      others.push_back(j);
    }
  }
  std::stable_sort(others.begin(), others.end(), [&](int64_t a, int64_t b) {
    return mass[static_cast<size_t>(a)] > mass[static_cast<size_t>(b)];
  });
  for (const int64_t j : others) {
    if (sum >= threshold * total) break;
    chosen[static_cast<size_t>(j)] = 1;
    sum += mass[static_cast<size_t>(j)];
  }
  return chosen;
}

bool XAttentionPolicy::ChoosesPattern(Phase phase, int /*layer*/) const {
  return phase == Phase::kPrefill && config_.threshold < 1;
}

SparsePattern XAttentionPolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const BlockGrid grid = GridOf(in, config_.block);
  if (StaysDense(scene, grid) || config_.threshold >= 1) return {};
  SparsePattern pattern = PatternOn(grid, in.shape.heads);
  const int group = in.shape.heads / in.shape.kv_heads;
  std::optional<StridedKeys> keys;
  for (int h = 0; h < in.shape.heads; ++h) {
    scene.Pause();
    const AttentionInput head = OneHead(in, h);
    if (h % group == 0) keys.emplace(head.keys, config_.stride, be);
    const std::vector<double> mass = AntidiagonalMass(head, grid, *keys, be);
    std::vector<std::vector<int32_t>>& key_blocks = pattern.heads[static_cast<size_t>(h)].key_blocks;
    for (int64_t b = 0; b < grid.query_blocks(); ++b) {
      std::vector<uint8_t> chosen;
      if (b < grid.first_dense()) {
        const auto row = std::span(mass).subspan(static_cast<size_t>(b * grid.key_blocks()),
                                                 static_cast<size_t>(grid.LastDiagonal(b) + 1));
        chosen = ChooseBlocks(row, grid.FirstDiagonal(b), config_.threshold);  // (3)
      }
      chosen.resize(static_cast<size_t>(grid.key_blocks()));
      key_blocks.push_back(KeyBlocksOf(grid, b, chosen));
    }
  }
  return pattern;
}

namespace {

Keys XAttentionKeys(XAttentionConfig& c, const ModelShape& /*shape*/) {
  return {
      {"threshold", &c.threshold, kAboveZero, 1, "share of the estimated mass to cover; 1 is dense"},
      {"stride", &c.stride, 1, kDenseRows, "rows per antidiagonal; the estimate costs 1 / stride", "",
       "1 to 128, divides block"},
      {"block", &c.block, 16, 1024, "queries and keys per block"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeXAttention(const MethodSpec& spec, const MethodContext& context) {
  XAttentionConfig c;
  Keys keys = XAttentionKeys(c, context.shape);
  keys.Read(spec);
  if (c.block % c.stride != 0) {
    throw PruneError("xattention: stride={} does not divide block={}", c.stride, c.block);
  }
  return MakeInstance<XAttentionPolicy>(keys, {LengthReason(context, c.minimum), WindowReason(context)}, c);
}

}  // namespace

MethodInfo XAttentionMethod() {
  return {"xattention",
          "sparse prefill attention: the blocks whose antidiagonals hold most of each query block's mass",
          "XAttention: block sparse attention with antidiagonal scoring, ICML 2025, arXiv 2503.16428",
          kSparsePrefill,
          HelpOf(&XAttentionKeys),
          &MakeXAttention};
}

}  // namespace coppice
