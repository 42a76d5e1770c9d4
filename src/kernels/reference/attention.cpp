// For query i at position p and head h, over the keys j with p - window < position_j <= p:
//   s_j = scale q_h . k_j + slope_h (position_j - p)
//   a_j = exp(s_j - max s) / (sum_j exp(s_j - max s) + exp(sink_h - max s))
//   out_h = sum_j a_j v_j          mass_j += weight_i a_j
// Key positions ascend, so the visible keys are one range. O(m n heads head_dim) time, O(n head_dim) memory:
// one kv head's keys and values in fp32, so a 16-bit cache is converted once per head, not once per query.
// AttentionMass holds the keys of all heads.
#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "formats/quants.h"
#include "kernels/op_checks.h"
#include "kernels/reference/dot.h"

namespace coppice::reference {
namespace {

// Columns [head * head_dim, (head + 1) * head_dim) of a cache matrix as fp32 rows [n, head_dim].
std::vector<float> HeadRows(const TensorView& cache, int head, int head_dim) {
  std::vector<float> rows(static_cast<size_t>(cache.rows * head_dim));
  for (int64_t j = 0; j < cache.rows; ++j) {
    const std::span<float> row(rows.data() + j * head_dim, static_cast<size_t>(head_dim));
    DequantizeRow(cache.dtype, cache.RowBytes(j) + BytesOf(cache.dtype, int64_t{head} * head_dim), row);
  }
  return rows;
}

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

KeyRange VisibleKeys(const AttentionInput& in, int64_t query) {
  const std::span<const int32_t> keys = in.key_positions;
  const int32_t p = in.query_positions[static_cast<size_t>(query)];
  const auto end = std::upper_bound(keys.begin(), keys.end(), p);
  const auto begin =
      in.shape.window > 0 ? std::upper_bound(keys.begin(), end, p - in.shape.window) : keys.begin();
  return {begin - keys.begin(), end - keys.begin()};
}

// a[j - seen.begin] for the keys of `seen`; 0 for keys not set in `mask`, if one is given. All zero if no key
// has weight.
void Weights(const AttentionInput& in, int64_t query, int head, const KeyRange& seen,
             const std::vector<float>& keys, std::span<float> a, const std::vector<bool>& mask = {}) {
  const AttentionShape& shape = in.shape;
  const float* q = in.queries.Row<float>(query).data() + int64_t{head} * shape.head_dim;
  const float slope = shape.alibi_slopes.empty() ? 0.0f : shape.alibi_slopes[static_cast<size_t>(head)];
  const int32_t p = in.query_positions[static_cast<size_t>(query)];
  float max = -std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < a.size(); ++j) {
    const int64_t key = seen.begin + static_cast<int64_t>(j);
    const float distance = static_cast<float>(in.key_positions[static_cast<size_t>(key)] - p);
    a[j] = shape.scale * Dot(q, keys.data() + key * shape.head_dim, shape.head_dim) + slope * distance;
    if (!mask.empty() && !mask[static_cast<size_t>(key)]) a[j] = -std::numeric_limits<float>::infinity();
    max = std::max(max, a[j]);
  }
  if (max == -std::numeric_limits<float>::infinity())
    max = 0;  // -inf - -inf would be NaN; this makes every weight 0
  float sum = 0;
  for (float& w : a) sum += w = std::exp(w - max);
  if (sum == 0) return;
  if (!shape.sinks.empty()) sum += std::exp(shape.sinks[static_cast<size_t>(head)] - max);
  for (float& w : a) w /= sum;
}

// out_head [head_dim] = sum_j a_j v_j over the keys of `seen`.
void AddValues(const std::vector<float>& values, const KeyRange& seen, std::span<const float> a,
               std::span<float> out_head) {
  float* __restrict o = out_head.data();
  const auto dim = static_cast<int64_t>(out_head.size());
  std::fill_n(o, dim, 0.0f);
  for (size_t j = 0; j < a.size(); ++j) {
    const float* v = values.data() + (seen.begin + static_cast<int64_t>(j)) * dim;
    for (int64_t c = 0; c < dim; ++c) o[c] += a[j] * v[c];
  }
}

std::span<float> HeadOf(MutableTensorView out, int64_t query, int head, int head_dim) {
  return out.Row<float>(query).subspan(static_cast<size_t>(head) * static_cast<size_t>(head_dim),
                                       static_cast<size_t>(head_dim));
}

}  // namespace

void Attention(const AttentionInput& in, MutableTensorView out) {
  CheckAttention(in, out);
  const AttentionShape& shape = in.shape;
  const int group = shape.heads / shape.kv_heads;
  std::vector<float> scores(static_cast<size_t>(in.keys.rows));
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const std::vector<float> keys = HeadRows(in.keys, kv_head, shape.head_dim);
    const std::vector<float> values = HeadRows(in.values, kv_head, shape.head_dim);
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const KeyRange seen = VisibleKeys(in, i);
      const std::span<float> a = std::span(scores).first(static_cast<size_t>(seen.end - seen.begin));
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        Weights(in, i, head, seen, keys, a);
        AddValues(values, seen, a, HeadOf(out, i, head, shape.head_dim));
      }
    }
  }
}

void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                   MutableTensorView mass) {
  CheckAttentionMass(in, query_weights, mass);
  const AttentionShape& shape = in.shape;
  const int group = shape.heads / shape.kv_heads;
  std::vector<std::vector<float>> keys;
  for (int h = 0; h < shape.kv_heads; ++h) keys.push_back(HeadRows(in.keys, h, shape.head_dim));
  std::vector<float> scores(static_cast<size_t>(in.keys.rows));
  std::vector<double> sums(static_cast<size_t>(in.keys.rows), 0.0);
  for (int64_t i = 0; i < in.queries.rows; ++i) {
    const KeyRange seen = VisibleKeys(in, i);
    const double weight = query_weights.empty() ? 1.0 : double{query_weights[static_cast<size_t>(i)]};
    const std::span<float> a = std::span(scores).first(static_cast<size_t>(seen.end - seen.begin));
    for (int head = 0; head < shape.heads; ++head) {
      Weights(in, i, head, seen, keys[static_cast<size_t>(head / group)], a);
      for (size_t j = 0; j < a.size(); ++j) {
        double& pooled = sums[static_cast<size_t>(seen.begin) + j];
        pooled = pool == MassPool::kSum ? pooled + weight * a[j] : std::max(pooled, weight * a[j]);
      }
    }
  }
  for (size_t j = 0; j < sums.size(); ++j) mass.Row<float>(0)[j] = static_cast<float>(sums[j]);
}

void AttentionWeights(const AttentionInput& in, MutableTensorView weights) {
  CheckAttentionWeights(in, weights);
  const AttentionShape& shape = in.shape;
  const int group = shape.heads / shape.kv_heads;
  for (int head = 0; head < shape.heads; ++head) {
    const std::vector<float> keys = HeadRows(in.keys, head / group, shape.head_dim);
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const std::span<float> row = weights.Row<float>(i * shape.heads + head);
      const KeyRange seen = VisibleKeys(in, i);
      std::fill(row.begin(), row.end(), 0.0f);
      Weights(in, i, head, seen, keys,
              row.subspan(static_cast<size_t>(seen.begin), static_cast<size_t>(seen.end - seen.begin)));
    }
  }
}

void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                     MutableTensorView out) {
  CheckSparseAttention(in, pattern, first_query, out);
  if (pattern.empty()) return Attention(in, out);
  const AttentionShape& shape = in.shape;
  const int group = shape.heads / shape.kv_heads;
  std::vector<float> scores(static_cast<size_t>(in.keys.rows));
  for (int head = 0; head < shape.heads; ++head) {
    const std::vector<float> keys = HeadRows(in.keys, head / group, shape.head_dim);
    const std::vector<float> values = HeadRows(in.values, head / group, shape.head_dim);
    std::vector<bool> mask;
    int64_t mask_block = -1;
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const int64_t block = (first_query + i) / pattern.query_block;
      if (block != mask_block) {
        mask.assign(static_cast<size_t>(in.keys.rows), false);
        for (int32_t key : KeysOf(pattern, head, block, in.keys.rows)) mask[static_cast<size_t>(key)] = true;
        mask_block = block;
      }
      const KeyRange seen = VisibleKeys(in, i);
      const std::span<float> a = std::span(scores).first(static_cast<size_t>(seen.end - seen.begin));
      Weights(in, i, head, seen, keys, a, mask);
      AddValues(values, seen, a, HeadOf(out, i, head, shape.head_dim));
    }
  }
}

void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) {
  CheckUnitScores(in, unit, unit_scores);
  const AttentionShape& shape = in.shape;
  const int group = shape.heads / shape.kv_heads;
  const int64_t dim = shape.head_dim;
  std::vector<float> mean_query(static_cast<size_t>(in.queries.cols), 0.0f);
  for (int64_t i = 0; i < in.queries.rows; ++i) {
    for (size_t c = 0; c < mean_query.size(); ++c) mean_query[c] += in.queries.Row<float>(i)[c];
  }
  for (float& q : mean_query) q /= static_cast<float>(in.queries.rows);

  std::vector<float> key(static_cast<size_t>(in.keys.cols));
  std::vector<float> unit_key(key.size());
  for (int64_t u = 0; u < unit_scores.cols; ++u) {
    const int64_t begin = u * unit;
    const int64_t end = std::min(begin + unit, in.keys.rows);
    const bool mean = pool == KeyPool::kMean;
    std::fill(unit_key.begin(), unit_key.end(), mean ? 0.0f : -std::numeric_limits<float>::infinity());
    for (int64_t j = begin; j < end; ++j) {
      DequantizeRow(in.keys.dtype, in.keys.RowBytes(j), key);
      for (size_t c = 0; c < key.size(); ++c) {
        unit_key[c] = mean ? unit_key[c] + key[c] : std::max(unit_key[c], key[c]);
      }
    }
    if (mean) {
      for (float& k : unit_key) k /= static_cast<float>(end - begin);
    }
    float sum = 0;
    for (int h = 0; h < shape.heads; ++h) {
      sum += Dot(mean_query.data() + h * dim, unit_key.data() + (h / group) * dim, dim);
    }
    unit_scores.Row<float>(0)[static_cast<size_t>(u)] = sum / static_cast<float>(shape.heads);
  }
}

}  // namespace coppice::reference
