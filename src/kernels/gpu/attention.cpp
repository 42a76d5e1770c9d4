// Dense attention, its decode form, and the softmax weights that score keys. sparse_attention.cpp has
// patterns.
#include "kernels/gpu/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/gpu/attention_operands.h"

namespace coppice::gpu {

namespace {

constexpr int64_t kTile = 128;         // queries, and keys, of a tile of `attention`
constexpr int64_t kLsePiece = 4096;    // keys of a program of `attention_lse`
constexpr int64_t kDecodePiece = 256;  // keys of a program of `decode_attention`
constexpr int64_t kMostUnit = 16;      // heads of one
// Queries that AttentionMass takes at once: their partial sums are [keys / 4096, heads, queries, 2].
constexpr int64_t kMassQueries = 256;

// The rows of keys that some, and that all, of the queries from `first` to `last` (positions) see.
struct Seen {
  int64_t begin, all_begin, all_end, end;
};
Seen SeenBy(std::span<const int32_t> keys, int32_t first, int32_t last, int64_t window) {
  const auto up_to = [&](int64_t position) {
    return std::upper_bound(keys.begin(), keys.end(), position) - keys.begin();
  };
  return {window > 0 ? up_to(first - window) : 0, window > 0 ? up_to(last - window) : 0, up_to(first),
          up_to(last)};
}

// [queries / 128 rounded up, 4]: the tiles of keys that a tile of queries reads.
std::vector<int32_t> TilesOf(const AttentionInput& in) {
  std::vector<int32_t> tiles;
  for (int64_t row = 0; row < in.queries.rows; row += kTile) {
    const int64_t last = std::min(row + kTile, in.queries.rows) - 1;
    const Seen seen = SeenBy(in.key_positions, in.query_positions[static_cast<size_t>(row)],
                             in.query_positions[static_cast<size_t>(last)], in.shape.window);
    const int64_t begin = seen.begin / kTile;
    const int64_t end = CeilDiv(seen.end, kTile);
    const int64_t full_begin = std::min(CeilDiv(seen.all_begin, kTile), end);
    const int64_t full_end = std::clamp(seen.all_end / kTile, full_begin, end);
    for (const int64_t tile : {begin, full_begin, full_end, end}) tiles.push_back(static_cast<int32_t>(tile));
  }
  return tiles;
}

// For each query and unit of heads: the first of the keys that it sees, their number, and where their rows
// are in `list` (-1: they follow each other).
struct DecodeKeys {
  int64_t unit = 1;
  int64_t pieces = 1;
  std::vector<int32_t> ranges;
  std::vector<int32_t> list;
};

DecodeKeys DenseKeys(const AttentionInput& in) {
  DecodeKeys keys;
  const int64_t group = in.shape.heads / in.shape.kv_heads;
  keys.unit = std::min(group, kMostUnit);
  while (group % keys.unit != 0) --keys.unit;
  for (const int32_t position : in.query_positions) {
    const Seen seen = SeenBy(in.key_positions, position, position, in.shape.window);
    for (int64_t u = 0; u < in.shape.heads / keys.unit; ++u) {
      keys.ranges.insert(keys.ranges.end(),
                         {static_cast<int32_t>(seen.begin), static_cast<int32_t>(seen.end - seen.begin), -1});
    }
    keys.pieces = std::max(keys.pieces, CeilDiv(seen.end - seen.begin, kDecodePiece));
  }
  return keys;
}

DecodeKeys PatternKeys(const AttentionInput& in, const SparsePattern& pattern) {
  DecodeKeys keys;
  for (size_t i = 0; i < in.query_positions.size(); ++i) {
    const int32_t position = in.query_positions[i];
    const Seen seen = SeenBy(in.key_positions, position, position, in.shape.window);
    for (int head = 0; head < in.shape.heads; ++head) {
      const auto offset = static_cast<int32_t>(keys.list.size());
      const auto block = static_cast<int64_t>(i) / pattern.query_block;
      std::ranges::copy_if(KeysOf(pattern, head, block, in.keys.rows), std::back_inserter(keys.list),
                           [&](int32_t row) { return row >= seen.begin && row < seen.end; });
      const auto count = static_cast<int32_t>(keys.list.size()) - offset;
      keys.ranges.insert(keys.ranges.end(), {0, count, offset});
      keys.pieces = std::max(keys.pieces, CeilDiv(count, kDecodePiece));
    }
  }
  return keys;
}

}  // namespace

void Attention(Gpu& gpu, const AttentionInput& in, MutableTensorView out) {
  if (in.queries.rows == 0) return;
  Operands op(gpu);
  AttentionOperands a(gpu, op, in, true);
  const Operands::Place y = op.Out(out);
  a.aligned = a.aligned && IsAligned(y, 4);
  const CUdeviceptr no_lse = 0;
  gpu.kernels().Launch(a.Variant("attention", true), {CeilDiv(a.m, kTile), a.heads}, a.q.address, a.k.address,
                       a.v.address, a.query_positions, a.key_positions, op.List(TilesOf(in)), a.slopes,
                       y.address, no_lse, a.m, a.n, a.group, a.head_dim, a.q.stride, a.k.stride, a.v.stride,
                       y.stride, a.window, a.scale, int64_t{0});
  op.Finish();
}

void DecodeAttention(Gpu& gpu, const AttentionInput& in, const SparsePattern& pattern,
                     MutableTensorView out) {
  if (in.queries.rows == 0) return;
  Operands op(gpu);
  const AttentionOperands a(gpu, op, in, true);
  const Operands::Place y = op.Out(out);
  const DecodeKeys keys = pattern.empty() ? DenseKeys(in) : PatternKeys(in, pattern);
  const CUdeviceptr ranges = op.List(keys.ranges);
  const CUdeviceptr partial = op.Scratch(a.m * a.heads * keys.pieces * a.head_dim * 4);
  const CUdeviceptr stats = op.Scratch(a.m * a.heads * keys.pieces * 2 * 4);
  gpu.kernels().Launch(a.Variant("decode_attention", true), {a.m, a.heads / keys.unit, keys.pieces},
                       a.q.address, a.k.address, a.v.address, a.query_positions, a.key_positions, a.slopes,
                       ranges, op.List(keys.list), partial, stats, keys.pieces, a.group, keys.unit,
                       a.head_dim, a.q.stride, a.k.stride, a.v.stride, a.scale);
  gpu.kernels().Launch("merge_decode", {a.m, a.heads}, partial, stats, ranges, y.address, keys.pieces,
                       keys.unit, a.head_dim, y.stride);
  op.Finish();
}

void AttentionMass(Gpu& gpu, const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                   MutableTensorView mass) {
  if (in.keys.rows == 0) return;
  Operands op(gpu);
  const AttentionOperands a(gpu, op, in, false);
  const Operands::Place y = op.Out(mass);
  const CUdeviceptr weights = op.List(query_weights);
  const CUdeviceptr partial = op.Scratch(a.heads * a.n * 4);
  const int64_t most = std::min(a.m, kMassQueries);
  const int64_t pieces = CeilDiv(a.n, kLsePiece);
  const CUdeviceptr parts = op.Scratch(pieces * a.heads * most * 2 * 4);
  const CUdeviceptr lse = op.Scratch(a.heads * most * 4);
  const int64_t pooled = pool == MassPool::kMaximum ? 1 : 0;
  const auto at = [](CUdeviceptr list, int64_t i) {
    return list == 0 ? list : list + static_cast<CUdeviceptr>(4 * i);
  };
  if (a.m == 0) gpu.device().Zero(partial, a.heads * a.n * 4, {1, a.heads * a.n * 4});
  for (int64_t first = 0; first < a.m; first += most) {
    const int64_t m = std::min(most, a.m - first);
    const CUdeviceptr q = at(a.q.address, first * a.q.stride);
    const CUdeviceptr positions = at(a.query_positions, first);
    gpu.kernels().Launch(a.Variant("attention_lse", false), {CeilDiv(m, 64), a.heads, pieces}, q, a.k.address,
                         positions, a.key_positions, a.slopes, parts, m, a.n, a.group, a.head_dim, a.q.stride,
                         a.k.stride, a.window, a.scale);
    gpu.kernels().Launch("merge_lse", {CeilDiv(a.heads * m, 256)}, parts, lse, pieces, a.heads * m);
    const int64_t flags = pooled | (weights != 0 ? 2 : 0) | (first > 0 ? 4 : 0);
    gpu.kernels().Launch(a.Variant("attention_mass", false), {CeilDiv(a.n, 128), a.heads}, q, a.k.address,
                         positions, a.key_positions, a.slopes, lse, at(weights, first), partial, m, a.n,
                         a.group, a.head_dim, a.q.stride, a.k.stride, a.window, a.scale, flags);
  }
  gpu.kernels().Launch("merge_mass", {CeilDiv(a.n, 256)}, partial, y.address, a.heads, a.n, pooled);
  op.Finish();
}

void AttentionWeights(Gpu& gpu, const AttentionInput& in, MutableTensorView weights) {
  if (TensorView(weights).empty()) return;
  Operands op(gpu);
  const AttentionOperands a(gpu, op, in, false);
  const Operands::Place y = op.Out(weights);
  gpu.kernels().Launch("attention_scores_any", {CeilDiv(a.m, 16), a.heads, CeilDiv(a.n, 128)}, a.q.address,
                       a.k.address, a.query_positions, a.key_positions, a.slopes, y.address, a.m, a.n,
                       a.group, a.head_dim, a.q.stride, a.k.stride, y.stride, a.window, a.scale);
  gpu.kernels().Launch("softmax_rows", {a.m * a.heads}, y.address, a.n, y.stride);
  op.Finish();
}

void UnitScores(Gpu& gpu, const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) {
  if (in.keys.rows == 0) return;
  Operands op(gpu);
  const AttentionOperands a(gpu, op, in, false, /*positions=*/false);
  const Operands::Place y = op.Out(unit_scores);
  const int64_t kv_heads = a.heads / a.group;
  const CUdeviceptr query = op.Scratch(kv_heads * a.head_dim * 4);
  gpu.kernels().Launch("unit_query", {kv_heads, CeilDiv(a.head_dim, 64)}, a.q.address, query, a.m, a.group,
                       a.head_dim, a.q.stride);
  gpu.kernels().Launch("unit_scores", {CeilDiv(a.n, unit)}, query, a.k.address, y.address, a.n,
                       kv_heads * a.head_dim, a.heads, int64_t{unit}, a.k.stride,
                       int64_t{pool == KeyPool::kMax ? 1 : 0});
  op.Finish();
}

}  // namespace coppice::gpu
