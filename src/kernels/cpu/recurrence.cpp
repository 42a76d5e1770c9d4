#include "kernels/cpu/recurrence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op_checks.h"

namespace coppice::cpu {

namespace {

const float* RowOf(const TensorView& t, int64_t row) {
  return reinterpret_cast<const float*>(t.RowBytes(row));
}
int64_t Floats(int64_t stride) { return stride / static_cast<int64_t>(sizeof(float)); }

// Where the factors of a row are, in floats.
struct FactorLayout {
  explicit FactorLayout(const RecurrenceShape& shape)
      : strength(shape.value_heads),
        key(2 * strength),
        query(key + shape.key_heads),
        size(query + shape.key_heads) {}
  int64_t strength;  // by value head; e^r begins at 0
  int64_t key;       // by key head
  int64_t query;
  int64_t size;
};

// Columns [first, first + kStateColumns) of a head, without its factors.
RecurrenceBlock BlockOf(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                        const RecurrenceRows& rows, int head, int64_t first) {
  const int64_t key = int64_t{shape.KeyHeadOf(head)} * shape.key_dim;
  const int64_t value = int64_t{head} * shape.value_dim + first;
  RecurrenceBlock block = {};
  block.q = RowOf(rows.q, 0) + key;
  block.k = RowOf(rows.k, 0) + key;
  block.q_stride = Floats(rows.q.stride);
  block.k_stride = Floats(rows.k.stride);
  block.v = RowOf(rows.v, 0) + value;
  block.v_stride = Floats(rows.v.stride);
  block.out = reinterpret_cast<float*>(rows.out.data) + value;
  block.out_stride = Floats(rows.out.stride);
  block.state = reinterpret_cast<float*>(rows.state.RowBytes(int64_t{head} * shape.key_dim)) + first;
  block.state_stride = Floats(rows.state.stride);
  block.skip = weights.skip.empty() ? 0 : RowOf(weights.skip, 0)[head];
  block.rows = rows.q.rows;
  block.key_dim = shape.key_dim;
  block.columns = std::min<int64_t>(kStateColumns, shape.value_dim - first);
  block.keeps_state = rows.keeps_state;
  return block;
}

}  // namespace

void RecurrenceOps::FindFactors(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                                std::span<const RecurrenceRows> sequences,
                                std::span<const int64_t> first_rows) {
  const bool delta = shape.rule == RecurrenceRule::kGatedDelta;
  const FactorLayout layout(shape);
  factors_.Resize(DType::kF32, first_rows.back(), layout.size);
  const MutableTensorView factors = factors_.mutable_view();
  const float query_scale = 1 / std::sqrt(static_cast<float>(shape.key_dim));
  constexpr int64_t kGrain = 16;
  pool_.For(factors.rows, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto next = std::upper_bound(first_rows.begin(), first_rows.end(), i);
      const auto s = next - first_rows.begin() - 1;
      const RecurrenceRows& rows = sequences[static_cast<size_t>(s)];
      const int64_t row = i - first_rows[static_cast<size_t>(s)];
      float* const to = factors.Row<float>(i).data();
      kernels_.gates(RowOf(rows.step, row), delta ? RowOf(rows.beta, row) : nullptr, RowOf(weights.rate, 0),
                     RowOf(weights.bias, 0), shape.value_heads, {to, to + layout.strength});
      if (!delta) continue;
      kernels_.lengths(RowOf(rows.k, row), shape.key_heads, shape.key_dim, 1, to + layout.key);
      kernels_.lengths(RowOf(rows.q, row), shape.key_heads, shape.key_dim, query_scale, to + layout.query);
    }
  });
}

void RecurrenceOps::Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                          std::span<const RecurrenceRows> sequences) {
  std::vector<int64_t> first_rows = {0};
  for (const RecurrenceRows& rows : sequences) {
    CheckRecur(shape, weights, rows);
    first_rows.push_back(first_rows.back() + rows.q.rows);
  }
  const int64_t all_rows = first_rows.back();
  if (all_rows == 0) return;
  FindFactors(shape, weights, sequences, first_rows);
  const FactorLayout layout(shape);
  const auto run = shape.rule == RecurrenceRule::kGatedDelta ? kernels_.gated_delta : kernels_.mamba2;
  const int64_t blocks = (int64_t{shape.value_dim} + kStateColumns - 1) / kStateColumns;
  const int64_t of_sequence = shape.value_heads * blocks;
  states_.Resize(DType::kF32, pool_.size(), int64_t{shape.key_dim} * kStateColumns);
  const MutableTensorView states = states_.mutable_view();
  // The state of few rows comes from memory, and a thread then reads whole heads, one after the other.
  constexpr int64_t kFewRows = 8;
  const int64_t grain = all_rows < kFewRows * std::ssize(sequences) ? blocks : 1;
  pool_.For(of_sequence * std::ssize(sequences), grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const auto sequence = static_cast<size_t>(i / of_sequence);
      if (sequences[sequence].q.rows == 0) continue;
      const int head = static_cast<int>(i % of_sequence / blocks);
      RecurrenceBlock block = BlockOf(shape, weights, sequences[sequence], head, i % blocks * kStateColumns);
      const float* factors = RowOf(factors_.view(), first_rows[sequence]);
      const int key_head = shape.KeyHeadOf(head);
      block.decay = factors + head;
      block.strength = factors + layout.strength + head;
      block.key_factor = factors + layout.key + key_head;
      block.query_factor = factors + layout.query + key_head;
      block.factor_stride = layout.size;
      run(block, states.Row<float>(thread).data());
    }
  });
}

void RecurrenceOps::Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                             MutableTensorView y) const {
  CheckConvolve(x, before, by, y);
  if (x.empty()) return;
  const int64_t taps = by.weight.rows;
  constexpr int64_t kPart = 4096;  // channels or values; fewer cost less than handing them out
  const int64_t parts = (x.cols + kPart - 1) / kPart;
  pool_.For(x.rows * parts, std::max<int64_t>(1, kPart / x.cols), [&](int64_t begin, int64_t end, int) {
    std::vector<const float*> from(static_cast<size_t>(taps));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts;
      const int64_t c = i % parts * kPart;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t at = row - (taps - 1) + t;
        from[static_cast<size_t>(t)] = (at < 0 ? RowOf(before, taps - 1 + at) : RowOf(x, at)) + c;
      }
      kernels_.convolve({.x = from.data(),
                         .weight = RowOf(by.weight, 0) + c,
                         .weight_stride = Floats(by.weight.stride),
                         .taps = taps,
                         .bias = by.bias.empty() ? nullptr : RowOf(by.bias, 0) + c,
                         .channels = std::min(kPart, x.cols - c),
                         .silu = by.silu,
                         .y = y.Row<float>(row).data() + c});
    }
  });
}

}  // namespace coppice::cpu
