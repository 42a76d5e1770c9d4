// A query of one head, for all forms of attention.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/gpu/fake/fake_kernels.h"
#include "tensor/dtype.h"

namespace coppice::gpu::fake {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504f;

// A query of one head: the scores of keys, and the values that they weigh.
class Query {
 public:
  Query(const KernelCall& k, int64_t row, int64_t head, bool alibi)
      : k_(k),
        dim_(k.I("head_dim")),
        column_(head / k.I("group") * dim_),
        key_stride_(k.I("sk")),
        scale_(k.F("scale")),
        positions_(k.At("key_positions")),
        keys_(k.At("k")),
        alibi_(alibi) {
    const float* q = k.P<float>("q", dim_, row * k.I("sq") + head * dim_);
    for (int64_t c = 0; c < dim_; ++c) query_.push_back(ToFloat(ToBF16(q[c])));
    position_ = *k.P<int32_t>("query_positions", 1, row);
    if (alibi) slope_ = *k.P<float>("slopes", 1, head);
  }

  bool Sees(int64_t key, int64_t window) const {
    const int32_t at = *k_.P<int32_t>(positions_, 1, key);
    return at <= position_ && (window == 0 || at > position_ - window);
  }
  float Score(int64_t key) const {
    const BF16* row = k_.P<BF16>(keys_, dim_, key * key_stride_ + column_);
    float dot = 0;
    for (int64_t c = 0; c < dim_; ++c) dot += query_[static_cast<size_t>(c)] * Widened(row[c]);
    float score = dot * scale_;
    if (alibi_) score += slope_ * static_cast<float>(*k_.P<int32_t>(positions_, 1, key) - position_);
    return score;
  }
  // sum of weights, and out [head_dim] = their sum of values, relative to the largest score, which it
  // returns.
  float Attend(const std::vector<int64_t>& keys, std::vector<float>& out, float& total) const {
    const int64_t stride = k_.I("sv");
    const KernelCall::Pointer values = k_.At("v");
    std::vector<float> scores;
    float best = -kInfinity;
    for (const int64_t key : keys) best = std::max(best, scores.emplace_back(Score(key)));
    out.assign(static_cast<size_t>(dim_), 0);
    total = 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      const float weight = std::exp(scores[j] - best);
      total += weight;
      const BF16* row = k_.P<BF16>(values, dim_, keys[j] * stride + column_);
      for (int64_t c = 0; c < dim_; ++c) out[static_cast<size_t>(c)] += weight * Widened(row[c]);
    }
    return best;
  }

 private:
  static float Widened(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

  const KernelCall& k_;
  int64_t dim_;
  int64_t column_;
  int64_t key_stride_;
  float scale_;
  KernelCall::Pointer positions_;
  KernelCall::Pointer keys_;
  bool alibi_;
  std::vector<float> query_;
  int32_t position_ = 0;
  float slope_ = 0;
};

}  // namespace coppice::gpu::fake
