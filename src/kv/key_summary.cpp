#include "kv/key_summary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "formats/quants.h"
#include "tensor/device_memory.h"

namespace coppice {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Row i in fp32. Every key of a prompt passes through here. bfloat16, the type of most caches, is widened
// inline because the compiler can vectorise that loop, but not a call per value.
void WidenRow(const TensorView& m, int64_t i, std::span<float> y) {
  if (m.dtype != DType::kBF16) return DequantizeRow(m.dtype, m.RowBytes(i), y);
  const std::span<const BF16> x = m.Row<BF16>(i);
  for (size_t c = 0; c < y.size(); ++c) y[c] = std::bit_cast<float>(static_cast<uint32_t>(x[c].bits) << 16);
}

}  // namespace

UnitKeys::UnitKeys(const AttentionShape& shape, int queries, int unit, KeyPool pool, int64_t prompt_tokens)
    : shape_(shape), unit_(unit), pool_(pool), prompt_tokens_(prompt_tokens) {
  COPPICE_CHECK(queries > 0 && unit > 0 && prompt_tokens >= 0 && shape.heads % shape.kv_heads == 0);
  shape_.alibi_slopes = {};  // not used here, and its memory belongs to the caller
  units_ = (prompt_tokens + unit - 1) / unit;
  pooled_ = Tensor::Zeros(DType::kF32, units_, int64_t{shape.kv_heads} * shape.head_dim);
  counts_.resize(static_cast<size_t>(units_));
  ring_ = Tensor(DType::kF32, queries, int64_t{shape.heads} * shape.head_dim);
}

void UnitKeys::AddKeys(std::span<const int32_t> positions, const TensorView& keys) {
  COPPICE_CHECK(keys.rows == static_cast<int64_t>(positions.size()) && keys.cols == pooled_.cols());
  const HostRows host(keys);
  std::vector<float> key(static_cast<size_t>(keys.cols));
  const MutableTensorView pooled = pooled_.mutable_view();
  for (int64_t i = 0; i < keys.rows; ++i) {
    const int32_t position = positions[static_cast<size_t>(i)];
    if (position >= prompt_tokens_) continue;
    WidenRow(host.view(), i, key);
    const std::span<float> unit = pooled.Row<float>(position / unit_);
    int32_t& count = counts_[static_cast<size_t>(position / unit_)];
    if (count == 0) {
      std::copy(key.begin(), key.end(), unit.begin());
    } else if (pool_ == KeyPool::kMean) {
      for (size_t c = 0; c < key.size(); ++c) unit[c] += key[c];
    } else {
      for (size_t c = 0; c < key.size(); ++c) unit[c] = std::max(unit[c], key[c]);
    }
    ++count;
  }
}

void UnitKeys::AddQueries(const TensorView& queries) {
  COPPICE_CHECK(queries.dtype == DType::kF32 && queries.cols == ring_.cols());
  const int64_t first =
      std::max<int64_t>(0, queries.rows - ring_.rows());  // earlier rows would be overwritten
  const HostRows last(queries.Rows(first, queries.rows - first));
  for (int64_t i = first; i < queries.rows; ++i) {
    CopyRows(last.view().Rows(i - first, 1),
             ring_.mutable_view().Rows((queries_seen_ + i) % ring_.rows(), 1));
  }
  queries_seen_ += queries.rows;
}

void UnitKeys::Score(Backend& be, MutableTensorView scores) const {
  COPPICE_CHECK(queries_seen_ > 0 && scores.rows == 1 && scores.cols == units_);
  if (units_ == 0) return;
  // 1/H sum_{h in g} q̄_h. The oldest query comes first, so the sum does not depend on where the ring starts.
  const size_t dim = static_cast<size_t>(shape_.head_dim);
  const size_t group = static_cast<size_t>(shape_.heads / shape_.kv_heads);
  const int64_t count = std::min(queries_seen_, ring_.rows());
  Tensor grouped = Tensor::Zeros(DType::kF32, 1, pooled_.cols());
  const std::span<float> sum = grouped.mutable_view().Row<float>(0);
  for (int64_t i = queries_seen_ - count; i < queries_seen_; ++i) {
    const std::span<const float> query = ring_.view().Row<float>(i % ring_.rows());
    for (size_t c = 0; c < query.size(); ++c) sum[c / dim / group * dim + c % dim] += query[c];
  }
  for (float& q : sum) q /= static_cast<float>(count * shape_.heads);

  be.DecodeProduct(grouped.view(), pooled_.view(), {}, scores);
  const std::span<float> score = scores.Row<float>(0);
  for (size_t u = 0; u < score.size(); ++u) {
    if (counts_[u] == 0) score[u] = -kInfinity;
    if (pool_ == KeyPool::kMean && counts_[u] > 0) score[u] /= static_cast<float>(counts_[u]);
  }
}

void PageBounds::AddKeys(std::span<const int32_t> positions, const TensorView& keys) {
  COPPICE_CHECK(keys.rows == static_cast<int64_t>(positions.size()) && keys.cols == width_);
  if (positions.empty()) return;
  Grow(*std::max_element(positions.begin(), positions.end()) / page_ + 1);
  const HostRows host(keys);
  std::vector<float> key(static_cast<size_t>(width_));
  const MutableTensorView minimum = min_.mutable_view();
  const MutableTensorView maximum = max_.mutable_view();
  for (int64_t i = 0; i < keys.rows; ++i) {
    WidenRow(host.view(), i, key);
    const int64_t page = positions[static_cast<size_t>(i)] / page_;
    const std::span<float> low = minimum.Row<float>(page);
    const std::span<float> high = maximum.Row<float>(page);
    for (size_t c = 0; c < key.size(); ++c) {
      low[c] = std::min(low[c], key[c]);
      high[c] = std::max(high[c], key[c]);
    }
  }
}

void PageBounds::Grow(int64_t pages) {
  if (pages <= pages_) return;
  if (pages > min_.rows()) {
    const int64_t capacity = std::max(pages, min_.rows() + min_.rows() / 2);
    for (Tensor* bound : {&min_, &max_}) {
      Tensor grown(DType::kF32, capacity, width_);
      if (pages_ > 0) {
        std::memcpy(grown.mutable_view().data, bound->view().data,
                    static_cast<size_t>(pages_ * BytesOf(DType::kF32, width_)));
      }
      *bound = std::move(grown);
    }
  }
  for (; pages_ < pages; ++pages_) {
    std::ranges::fill(min_.mutable_view().Row<float>(pages_), kInfinity);
    std::ranges::fill(max_.mutable_view().Row<float>(pages_), -kInfinity);
  }
}

}  // namespace coppice
