// What scores keys without reading them all: means of units and bounds of pages, kept up to date as keys are
// written, wherever the keys themselves are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "tensor/tensor.h"

namespace coppice {

// Keys of one layer in units of positions [u * unit, (u + 1) * unit), pooled, and the layer's last queries.
// SlimInfer, eq. 1: score(u) = mean_h q̄_h . k̄_u,g(h); for the mean over heads a unit needs one product, with the
// queries summed over each group: 1/H sum_g (sum_{h in g} q̄_h) . k̄_u,g.
class UnitKeys {
 public:
  UnitKeys(const AttentionShape& shape, int queries, int unit, KeyPool pool, int64_t prompt_tokens);

  // keys [positions.size(), kv_heads * head_dim] in the cache's type. Each position once; only the prompt's count.
  void AddKeys(std::span<const int32_t> positions, const TensorView& keys);
  // queries [m, heads * head_dim] fp32, in order: the last `queries` ever added are averaged.
  void AddQueries(const TensorView& queries);
  // scores [1, units()] fp32; -inf where a unit has no key.
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
  std::vector<int32_t> counts_;  // [units] keys in the sum
  Tensor ring_;                  // [queries, heads * head_dim] fp32
  int64_t queries_seen_ = 0;
};

// By channel the smallest and largest key of each page of positions [p * page, (p + 1) * page): Quest. Grows
// with the sequence; what is removed from the cache stays inside the bounds.
class PageBounds {
 public:
  PageBounds(int page, int64_t width) : page_(page), width_(width) {}
  void AddKeys(std::span<const int32_t> positions, const TensorView& keys);
  // [pages, width] fp32; +inf and -inf where a page has no key.
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
