// Summaries that score keys without reading them: means or maxima of units, and bounds of pages. They are
// updated as keys are written and stay valid wherever the keys are stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "tensor/tensor.h"

namespace coppice {

// The pooled keys of one layer, in units of positions [u * unit, (u + 1) * unit), and the layer's last
// queries. SlimInfer, eq. 1: score(u) = mean_h q̄_h . k̄_u,g(h). The mean over heads needs one product per
// unit, with the queries summed over each group: 1/H sum_g (sum_{h in g} q̄_h) . k̄_u,g.
class UnitKeys {
 public:
  UnitKeys(const AttentionShape& shape, int queries, int unit, KeyPool pool, int64_t prompt_tokens);

  // keys [positions.size(), kv_heads * head_dim] in the cache's type. Add each position once; positions
  // outside the prompt are ignored.
  void AddKeys(std::span<const int32_t> positions, const TensorView& keys);
  // queries [m, heads * head_dim] fp32, in order. Score() averages the last `queries` added.
  void AddQueries(const TensorView& queries);
  // scores [1, units()] fp32; -inf for a unit without keys. At least one query must have been added.
  void Score(Backend& be, MutableTensorView scores) const;
  int64_t units() const { return units_; }
  int64_t bytes() const { return pooled_.bytes(); }

 private:
  AttentionShape shape_;
  int unit_;
  KeyPool pool_;
  int64_t prompt_tokens_;
  int64_t units_;
  Tensor pooled_;                // [units, kv_heads * head_dim] fp32: sums (kMean) or maxima (kMax)
  std::vector<int32_t> counts_;  // keys added per unit
  Tensor ring_;                  // [queries, heads * head_dim] fp32
  int64_t queries_seen_ = 0;
};

// The channel-wise minimum and maximum of the keys in each page of positions [p * page, (p + 1) * page), for
// Quest. Grows with the sequence. Removing a key from the cache does not shrink its page's bounds.
class PageBounds {
 public:
  PageBounds(int page, int64_t width) : page_(page), width_(width) {}
  void AddKeys(std::span<const int32_t> positions, const TensorView& keys);
  // [pages, width] fp32; +inf and -inf for a page without keys.
  TensorView minimum() const { return min_.view().Rows(0, pages_); }
  TensorView maximum() const { return max_.view().Rows(0, pages_); }
  int64_t bytes() const { return 2 * pages_ * width_ * 4; }

 private:
  void Grow(int64_t pages);

  int page_;
  int64_t width_;
  int64_t pages_ = 0;
  Tensor min_;  // [capacity, width]
  Tensor max_;
};

}  // namespace coppice
