#include "kernels/cpu/attention_plan.h"

#include <algorithm>
#include <span>

namespace coppice::cpu {
namespace {

constexpr int64_t kPackTask = 8;  // key tiles per packing task

int64_t KeyTiles(int64_t keys) { return (keys + kKeyTile - 1) / kKeyTile; }

const float* Floats(const TensorView& t) { return reinterpret_cast<const float*>(t.data); }

static_assert(static_cast<int>(DType::kQ8_0) == kQ8Cache);

}  // namespace

AttentionPlan::AttentionPlan(const AttentionInput& in, const KernelTable& kernels, bool codes)
    : in_(in), shape_(in.shape) {
  shape_.int8_values &= codes;
  if (!codes) shape_.key_bits = 0;
  const AttentionShape& s = shape_;
  group_ = s.heads / s.kv_heads;
  rows_ = in.queries.rows * group_;
  tiles_ = (rows_ + kAttentionRows - 1) / kAttentionRows;
  kernels_ = &KernelsFor(kernels, s, in.keys.dtype);
  int8_values_ = Int8Values(s, *kernels_);
  key_bits_ = KeyBits(s, *kernels_);
  begin_.reserve(in.query_positions.size());
  end_.reserve(in.query_positions.size());
  for (const int32_t p : in.query_positions) {
    const auto [begin, end] = VisibleRows(in, p);
    begin_.push_back(static_cast<int32_t>(begin));
    end_.push_back(static_cast<int32_t>(end));
  }
}

AttentionTile AttentionPlan::Tile(int64_t kv_head, int64_t tile) const {
  const AttentionShape& s = in_.shape;
  const int64_t first = tile * kAttentionRows;
  const int64_t offset = BytesOf(in_.keys.dtype, kv_head * s.head_dim);
  return {
      .queries = Floats(in_.queries) + kv_head * group_ * s.head_dim,
      .query_stride = in_.queries.stride / 4,
      .keys = in_.keys.data + offset,
      .values = in_.values.data == nullptr ? nullptr : in_.values.data + offset,
      .key_stride = in_.keys.stride,
      .value_stride = in_.values.stride,
      .cache_type = static_cast<int>(in_.keys.dtype),
      .group = static_cast<int>(group_),
      .head_dim = s.head_dim,
      .scale = s.scale,
      .slopes = s.alibi_slopes.empty() ? nullptr : s.alibi_slopes.data() + kv_head * group_,
      .sinks = s.sinks.empty() ? nullptr : s.sinks.data() + kv_head * group_,
      .query_positions = in_.query_positions.data(),
      .key_positions = in_.key_positions.data(),
      .visible_begin = begin_.data(),
      .visible_end = end_.data(),
      .first_row = first,
      .rows = static_cast<int>(std::min<int64_t>(kAttentionRows, rows_ - first)),
      .int8_values = int8_values_,
      .key_bits = key_bits_,
      .packed_keys = packed_ == nullptr ? nullptr : packed_->keys.view().data + PackedOffset(kv_head),
      .packed_values = packed_ == nullptr ? nullptr : packed_->values.view().data + PackedOffset(kv_head),
      .packed_order = nullptr,
      .queries_ready = false,
  };
}

void AttentionPlan::Pack(const ThreadPool& pool, PackedCache& to) {
  const int64_t bytes = static_cast<int64_t>(to.ready.size()) * HeadBytes(to);
  for (Tensor* t : {&to.keys, &to.values}) {
    if (t->bytes() < bytes) t->Resize(DType::kF32, 1, bytes / 4);
  }
  packed_ = &to;
  const std::span<PackedCache::Range> ready = std::span(to.ready).subspan(
      static_cast<size_t>(in_.first_kv_head), static_cast<size_t>(in_.shape.kv_heads));
  const int64_t first = begin_.front() / kKeyTile;
  const int64_t end = KeyTiles(end_.back());
  const bool known = std::ranges::all_of(ready, [&](const PackedCache::Range& r) {
    return r.begin == ready[0].begin && r.end == ready[0].end && r.begin <= first && first <= r.end;
  });
  const int64_t from = known ? std::min(ready[0].end, end) : first;
  pool.For(in_.shape.kv_heads * (end - from), kPackTask, [&](int64_t task, int64_t last, int) {
    for (; task < last; ++task) {
      const int64_t kv_head = task / (end - from);
      const int64_t tile = from + task % (end - from);
      const int64_t at = PackedOffset(kv_head) + tile * PackedTileBytes(in_.shape.head_dim);
      kernels_->pack(Tile(kv_head, 0), tile * kKeyTile, in_.keys.rows, to.keys.mutable_view().data + at,
                     to.values.mutable_view().data + at);
    }
  });
  // An incomplete tile does not count as ready, so it is packed again when more keys join it.
  const PackedCache::Range before = known ? ready[0] : PackedCache::Range{first, first};
  const int64_t whole = std::min(end, in_.keys.rows / kKeyTile);
  std::ranges::fill(ready, PackedCache::Range{before.begin, std::max(before.end, whole)});
}

int64_t AttentionPlan::HeadBytes(const PackedCache& packed) const {
  return KeyTiles(packed.max_rows) * PackedTileBytes(in_.shape.head_dim);
}

}  // namespace coppice::cpu
