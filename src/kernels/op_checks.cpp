#include "kernels/op_checks.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/ascends.h"
#include "base/check.h"

namespace coppice {
namespace {

bool IsF32(const TensorView& t, int64_t rows, int64_t cols) {
  return t.dtype == DType::kF32 && t.rows == rows && t.cols == cols;
}

bool IsPlain(DType type) { return Info(type).block_elements == 1; }

// Whether rows of `cols` values can be cached in `type`.
bool IsCached(DType type, int64_t cols) {
  return IsPlain(type) || (type == DType::kQ8_0 && cols % Info(type).block_elements == 0);
}

// Indices guard memory accesses, so release builds check them too; the caller reads the list anyway.
bool InRange(std::span<const int32_t> indices, int64_t end) {
  return std::all_of(indices.begin(), indices.end(), [end](int32_t i) { return i >= 0 && i < end; });
}

bool AscendsFromZero(std::span<const int32_t> list) {
  return Ascends(list) && (list.empty() || list.front() >= 0);
}

int64_t Count(std::span<const int32_t> list) { return static_cast<int64_t>(list.size()); }

}  // namespace

void CheckParts(std::span<const TensorView> parts) {
  COPPICE_CHECK(!parts.empty());
  for (const TensorView& part : parts) COPPICE_CHECK(part.cols == parts.front().cols);
}

void CheckProduct(const TensorView& x, const PackedMatrix& w, const TensorView& bias, const TensorView& y) {
  CheckProduct(x, w.outputs, w.inputs, {}, y);
  COPPICE_CHECK(bias.empty() || IsF32(bias, 1, w.gated ? 2 * w.outputs : w.outputs));
}

void CheckProduct(const TensorView& x, int64_t outputs, int64_t inputs, const TensorView& bias,
                  const TensorView& y) {
  COPPICE_CHECK(IsF32(x, x.rows, inputs));
  COPPICE_CHECK(IsF32(y, x.rows, outputs));
  COPPICE_CHECK(bias.empty() || IsF32(bias, 1, outputs));
}

void CheckEmbed(const TensorView& table, std::span<const int32_t> ids, const TensorView& y) {
  COPPICE_CHECK(IsF32(y, Count(ids), table.cols));
  COPPICE_CHECK(InRange(ids, table.rows));
}

void CheckNorm(const TensorView& x, const TensorView& parameter, const TensorView& y) {
  CheckSameShape(x, y);
  COPPICE_CHECK(IsF32(parameter, 1, x.cols));
}

void CheckRmsNorm(const TensorView& x, const TensorView& weight, const TensorView& y) {
  CheckSameShape(x, y);
  COPPICE_CHECK(IsF32(weight, 1, weight.cols));
  COPPICE_CHECK(x.cols == 0 || (weight.cols > 0 && x.cols % weight.cols == 0));
}

void CheckRope(const TensorView& x, int head_dim, std::span<const int32_t> positions,
               const RopeTable& table) {
  COPPICE_CHECK(IsF32(x, Count(positions), x.cols));
  COPPICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  CheckSameShape(table.cos, table.sin);
  COPPICE_CHECK(2 * table.cos.cols <= head_dim);
  COPPICE_CHECK(InRange(positions, table.cos.rows));
}

void CheckSameShape(const TensorView& x, const TensorView& y) {
  COPPICE_CHECK(IsF32(x, x.rows, x.cols));
  COPPICE_CHECK(IsF32(y, x.rows, x.cols));
}

void CheckGatherRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y) {
  COPPICE_CHECK(x.cols % Info(x.dtype).block_elements == 0 && y.dtype == x.dtype);
  COPPICE_CHECK(y.rows == Count(rows) && y.cols == x.cols);
  COPPICE_CHECK(InRange(rows, x.rows));
}

void CheckScatterAddRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y) {
  COPPICE_CHECK(IsF32(x, Count(rows), x.cols));
  COPPICE_CHECK(IsF32(y, y.rows, x.cols));
  COPPICE_CHECK(InRange(rows, y.rows));
}

void CheckAddScaledRows(const TensorView& x, std::span<const int32_t> rows, std::span<const float> scales,
                        const TensorView& y) {
  CheckScatterAddRows(x, rows, y);
  COPPICE_CHECK(scales.size() == rows.size() && x.memory == nullptr && y.memory == nullptr);
}

void CheckConvert(const TensorView& x, const TensorView& y) {
  COPPICE_CHECK(IsF32(x, y.rows, y.cols));
  COPPICE_CHECK(IsCached(y.dtype, y.cols));
}

void CheckRecur(const RecurrenceShape& s, const RecurrenceWeights& weights, const RecurrenceRows& rows) {
  const bool delta = s.rule == RecurrenceRule::kGatedDelta;
  const int64_t m = rows.q.rows;
  COPPICE_CHECK(s.key_heads > 0 && s.key_dim > 0 && s.value_dim > 0 && s.value_heads % s.key_heads == 0);
  COPPICE_CHECK(IsF32(rows.q, m, s.key_width()) && IsF32(rows.k, m, s.key_width()));
  COPPICE_CHECK(IsF32(rows.v, m, s.value_width()) && IsF32(rows.out, m, s.value_width()));
  COPPICE_CHECK(IsF32(rows.step, m, s.value_heads) && (!delta || IsF32(rows.beta, m, s.value_heads)));
  COPPICE_CHECK(IsF32(rows.state, int64_t{s.value_heads} * s.key_dim, s.value_dim));
  COPPICE_CHECK(IsF32(weights.rate, 1, s.value_heads) && IsF32(weights.bias, 1, s.value_heads));
  COPPICE_CHECK(weights.skip.empty() || IsF32(weights.skip, 1, s.value_heads));
  COPPICE_CHECK(rows.state.memory == nullptr && rows.out.memory == nullptr);
}

void CheckConvolve(const TensorView& x, const TensorView& before, const Convolution& by,
                   const TensorView& y) {
  COPPICE_CHECK(by.weight.rows > 0 && IsF32(by.weight, by.weight.rows, x.cols));
  COPPICE_CHECK(by.bias.empty() || IsF32(by.bias, 1, x.cols));
  COPPICE_CHECK(by.weight.rows == 1 || IsF32(before, by.weight.rows - 1, x.cols));
  COPPICE_CHECK(IsF32(x, x.rows, x.cols) && IsF32(y, x.rows, x.cols) && y.memory == nullptr);
}

void CheckMeanRows(const TensorView& x, int64_t block, const TensorView& means) {
  COPPICE_CHECK(block > 0 && IsF32(means, (x.rows + block - 1) / block, x.cols));
  COPPICE_CHECK(means.memory == nullptr);
}

void CheckAttentionInput(const AttentionInput& in, bool positions) {
  const AttentionShape& s = in.shape;
  COPPICE_CHECK(s.heads > 0 && s.kv_heads > 0 && s.head_dim > 0 && s.heads % s.kv_heads == 0);
  COPPICE_CHECK(IsF32(in.queries, in.queries.rows, int64_t{s.heads} * s.head_dim));
  COPPICE_CHECK(IsCached(in.keys.dtype, s.head_dim) && in.keys.cols == int64_t{s.kv_heads} * s.head_dim);
  if (!positions) return;
  COPPICE_CHECK(s.window >= 0);
  COPPICE_CHECK(s.alibi_slopes.empty() || s.alibi_slopes.size() == static_cast<size_t>(s.heads));
  COPPICE_CHECK(s.sinks.empty() || s.sinks.size() == static_cast<size_t>(s.heads));
  COPPICE_CHECK(Count(in.query_positions) == in.queries.rows && Count(in.key_positions) == in.keys.rows);
  COPPICE_CHECK(std::is_sorted(in.query_positions.begin(), in.query_positions.end()));
  COPPICE_CHECK(Ascends(in.key_positions));
}

void CheckAttention(const AttentionInput& in, const TensorView& out) {
  CheckAttentionInput(in);
  COPPICE_CHECK(in.values.dtype == in.keys.dtype && in.values.rows == in.keys.rows &&
                in.values.cols == in.keys.cols);
  COPPICE_CHECK(in.packed == nullptr ||
                (in.first_kv_head >= 0 &&
                 in.first_kv_head + in.shape.kv_heads <= std::ssize(in.packed->ready) &&
                 in.keys.rows <= in.packed->max_rows));
  CheckSameShape(in.queries, out);
}

void CheckAscendingRows(std::span<const int32_t> rows, int64_t most) {
  COPPICE_CHECK(Ascends(rows) && InRange(rows, most));
}

void CheckAttentionMass(const AttentionInput& in, std::span<const float> query_weights,
                        const TensorView& mass) {
  CheckAttentionInput(in);
  COPPICE_CHECK(query_weights.empty() || static_cast<int64_t>(query_weights.size()) == in.queries.rows);
  COPPICE_CHECK(std::all_of(query_weights.begin(), query_weights.end(),
                            [](float w) { return w > 0 && std::isfinite(w); }));
  COPPICE_CHECK(IsF32(mass, 1, in.keys.rows));
}

void CheckAttentionWeights(const AttentionInput& in, const TensorView& weights) {
  CheckAttentionInput(in);
  COPPICE_CHECK(IsF32(weights, in.queries.rows * in.shape.heads, in.keys.rows));
}

void CheckSparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                          const TensorView& out) {
  CheckAttention(in, out);
  COPPICE_CHECK(first_query >= 0);
  if (pattern.empty() || in.queries.rows == 0) return;
  COPPICE_CHECK(pattern.heads.size() == static_cast<size_t>(in.shape.heads));
  COPPICE_CHECK(pattern.query_block > 0);
  const int64_t begin = first_query / pattern.query_block;
  const int64_t end = (first_query + in.queries.rows - 1) / pattern.query_block + 1;
  for (const SparsePattern::Head& head : pattern.heads) {
    COPPICE_CHECK(AscendsFromZero(head.columns));
    if (head.key_blocks.empty()) continue;
    COPPICE_CHECK(pattern.key_block > 0);
    COPPICE_CHECK(static_cast<int64_t>(head.key_blocks.size()) >= end);
    for (int64_t b = begin; b < end; ++b) {
      COPPICE_CHECK(AscendsFromZero(head.key_blocks[static_cast<size_t>(b)]));
    }
  }
}

void CheckUnitScores(const AttentionInput& in, int unit, const TensorView& unit_scores) {
  CheckAttentionInput(in, /*positions=*/false);
  COPPICE_CHECK(unit > 0 && in.queries.rows > 0);
  COPPICE_CHECK(IsF32(unit_scores, 1, (in.keys.rows + unit - 1) / unit));
}

}  // namespace coppice
