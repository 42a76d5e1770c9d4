#include "kernels/reference/recurrence.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace coppice::reference {

namespace {

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// log(1 + e^x), without overflow.
float Softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// x / sqrt(sum x^2 + 1e-6) * factor (transformers, modeling_qwen3_5.py, l2norm).
std::vector<float> OfLength(std::span<const float> x, float factor) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  const float scale = factor / std::sqrt(squares + 1e-6F);
  std::vector<float> y(x.begin(), x.end());
  for (float& v : y) v *= scale;
  return y;
}

class Head {
 public:
  Head(const RecurrenceShape& shape, const RecurrenceWeights& weights, const RecurrenceRows& rows, int head)
      : shape_(shape),
        rows_(rows),
        head_(head),
        rate_(At(weights.rate, 0)),
        bias_(At(weights.bias, 0)),
        skip_(weights.skip.empty() ? 0 : At(weights.skip, 0)) {
    for (int i = 0; i < shape.key_dim; ++i) {
      const auto row = rows.state.Row<float>(int64_t{head} * shape.key_dim + i);
      state_.insert(state_.end(), row.begin(), row.end());
    }
  }

  void Run() {
    for (int64_t row = 0; row < rows_.q.rows; ++row) Step(row);
    if (rows_.keeps_state) return;
    for (int i = 0; i < shape_.key_dim; ++i) {
      std::copy_n(state_.begin() + int64_t{i} * shape_.value_dim, shape_.value_dim,
                  rows_.state.Row<float>(int64_t{head_} * shape_.key_dim + i).begin());
    }
  }

 private:
  float At(const TensorView& of_heads, int64_t row) const {
    return of_heads.Row<float>(row)[static_cast<size_t>(head_)];
  }
  std::span<const float> Part(const TensorView& x, int64_t row, int head, int dim) const {
    return x.Row<float>(row).subspan(static_cast<size_t>(int64_t{head} * dim), static_cast<size_t>(dim));
  }

  void Step(int64_t row) {
    const bool delta = shape_.rule == RecurrenceRule::kGatedDelta;
    const int key_head = shape_.KeyHeadOf(head_);
    std::span<const float> q = Part(rows_.q, row, key_head, shape_.key_dim);
    std::span<const float> k = Part(rows_.k, row, key_head, shape_.key_dim);
    const std::span<const float> v = Part(rows_.v, row, head_, shape_.value_dim);
    std::vector<float> unit_q;
    std::vector<float> unit_k;
    if (delta) {
      unit_q = OfLength(q, 1 / std::sqrt(static_cast<float>(shape_.key_dim)));
      unit_k = OfLength(k, 1);
      q = unit_q;
      k = unit_k;
    }
    const float step = Softplus(At(rows_.step, row) + bias_);
    const float decay = std::exp(rate_ * step);
    const float strength = delta ? Sigmoid(At(rows_.beta, row)) : step;
    const std::span<float> out =
        rows_.out.Row<float>(row).subspan(static_cast<size_t>(int64_t{head_} * shape_.value_dim), v.size());
    for (size_t c = 0; c < v.size(); ++c) {
      float* const s = state_.data() + c;  // a column of S
      const size_t stride = v.size();
      float known = 0;
      for (size_t i = 0; delta && i < k.size(); ++i) known += s[i * stride] * k[i];
      const float d = strength * (v[c] - decay * known);
      float o = 0;
      for (size_t i = 0; i < k.size(); ++i) {
        s[i * stride] = decay * s[i * stride] + k[i] * d;
        o += s[i * stride] * q[i];
      }
      out[c] = o + skip_ * v[c];
    }
  }

  const RecurrenceShape& shape_;
  const RecurrenceRows& rows_;
  int head_;
  float rate_;
  float bias_;
  float skip_;
  std::vector<float> state_;  // [key_dim, value_dim]
};

}  // namespace

void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights, const RecurrenceRows& rows) {
  for (int head = 0; head < shape.value_heads; ++head) Head(shape, weights, rows, head).Run();
}

void Convolve(const TensorView& x, const TensorView& before, const Convolution& by, MutableTensorView y) {
  const int64_t taps = by.weight.rows;
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::span<float> to = y.Row<float>(i);
    std::ranges::fill(to, 0.0F);
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t row = i - (taps - 1) + t;
      const std::span<const float> from = row < 0 ? before.Row<float>(taps - 1 + row) : x.Row<float>(row);
      const std::span<const float> weight = by.weight.Row<float>(t);
      for (size_t c = 0; c < to.size(); ++c) to[c] += weight[c] * from[c];
    }
    for (size_t c = 0; c < to.size(); ++c) {
      if (!by.bias.empty()) to[c] += by.bias.Row<float>(0)[c];
      if (by.silu) to[c] *= Sigmoid(to[c]);
    }
  }
}

}  // namespace coppice::reference
