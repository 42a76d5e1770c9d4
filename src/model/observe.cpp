#include "model/observe.h"

#include <algorithm>
#include <cstring>

namespace coppice {

namespace {

// Queries that go into a column sum together. Enough for the kernels to work in tiles; fixed, because sums in
// fp32 depend on how they are grouped.
constexpr int64_t kSumGroup = 256;

std::vector<float> Linspace(float last, int64_t count) {
  if (last == 1) return {};
  std::vector<float> weights(static_cast<size_t>(count), 1.0f);
  for (int64_t i = 1; i < count; ++i) {
    weights[static_cast<size_t>(i)] = 1 + (last - 1) * static_cast<float>(i) / static_cast<float>(count - 1);
  }
  return weights;
}

int64_t ListsOf(const Needs::Mass& mass, const AttentionShape& shape) {
  return mass.per_kv_head ? shape.kv_heads : 1;
}

}  // namespace

AttentionInput HeadInput(const AttentionInput& in, int kv_head, std::span<const int32_t> key_positions,
                         int count) {
  const AttentionShape& s = in.shape;
  const int group = s.heads / s.kv_heads;
  const int64_t c = s.head_dim;
  AttentionInput one = in;
  one.shape.heads = count * group;
  one.shape.kv_heads = count;
  if (!s.alibi_slopes.empty()) {
    one.shape.alibi_slopes =
        s.alibi_slopes.subspan(static_cast<size_t>(kv_head * group), static_cast<size_t>(count * group));
  }
  one.queries = in.queries.Cols(kv_head * group * c, count * group * c);
  one.keys = in.keys.Cols(kv_head * c, count * c);
  if (!in.values.empty()) one.values = in.values.Cols(kv_head * c, count * c);
  one.key_positions = key_positions;
  one.first_kv_head += kv_head;
  return one;
}

Observer::Observer(Phase phase, const Needs& needs, const AttentionShape& shape, const AttendedKeys& keys,
                   std::span<const int32_t> query_positions, Workspace& ws, UnitKeys* units)
    : needs_(needs),
      shape_(shape),
      keys_(keys),
      query_positions_(query_positions),
      ws_(ws),
      units_(units),
      rows_(static_cast<int64_t>(query_positions.size())) {
  for (const Needs::Mass& mass : needs.masses) {
    if (mass.queries == Needs::kAllQueries) {
      sums_[mass.per_kv_head ? 1 : 0] = true;
    } else {
      tail_ = std::max(tail_, mass.queries);
    }
  }
  for (const Needs::Units& u : needs.unit_scores) tail_ = std::max<int64_t>(tail_, u.queries);
  tail_ = std::min(tail_, phase == Phase::kDecode ? 1 : rows_);
  const bool all = sums_[0] || sums_[1];
  first_row_ = all ? 0 : rows_ - tail_;
  const int64_t width = int64_t{shape.heads} * shape.head_dim;
  ws.tail_q.Resize(DType::kF32, tail_, width);
  if (all) ws.sum_q.Resize(DType::kF32, kSumGroup, width);
  for (const int list : {0, 1}) {
    if (sums_[list]) {
      column_sums_[list] = Tensor::Zeros(DType::kF32, list == 0 ? 1 : shape.kv_heads, keys.keys.rows);
    }
  }
}

void Observer::Add(const Tile& tile, const TensorView& q, Backend& be) {
  const int64_t tail_begin = rows_ - tail_;
  const auto bytes = static_cast<size_t>(BytesOf(DType::kF32, q.cols));
  for (int64_t row = std::max(tile.begin, tail_begin); row < tile.begin + tile.count; ++row) {
    std::memcpy(ws_.tail_q.mutable_view().RowBytes(row - tail_begin), q.RowBytes(row - tile.begin), bytes);
  }
  if (sums_[0] || sums_[1]) AddToSum(tile, q, be);
}

void Observer::AddToSum(const Tile& tile, const TensorView& q, Backend& be) {
  COPPICE_CHECK(tile.begin == summed_ + pending_);
  const auto bytes = static_cast<size_t>(BytesOf(DType::kF32, q.cols));
  for (int64_t row = 0; row < tile.count; ++row) {
    std::memcpy(ws_.sum_q.mutable_view().RowBytes(pending_++), q.RowBytes(row), bytes);
    if (pending_ == kSumGroup) FlushSum(be);
  }
}

void Observer::FlushSum(Backend& be) {
  if (pending_ == 0) return;
  ws_.Pause();  // 256 queries over 32k keys with the heads of a 7b shape take half a second on two cores
  const auto positions =
      query_positions_.subspan(static_cast<size_t>(summed_), static_cast<size_t>(pending_));
  const AttentionInput in{shape_,     ws_.sum_q.view().Rows(0, pending_),
                          keys_.keys, keys_.values,
                          positions,  keys_.positions.front()};
  for (const int list : {0, 1}) {
    if (!sums_[list]) continue;
    const MutableTensorView sum = column_sums_[list].mutable_view();
    part_.Resize(DType::kF32, sum.rows, sum.cols);
    Mass(in, {}, list == 1, part_.mutable_view(), be);
    be.Add(part_.view(), sum);
  }
  summed_ += pending_;
  pending_ = 0;
}

void Observer::Mass(const AttentionInput& in, std::span<const float> weights, bool per_kv_head,
                    MutableTensorView lists, Backend& be) const {
  if (!per_kv_head) {
    COPPICE_CHECK(!keys_.ragged());
    be.AttentionMass(in, weights, lists);
    return;
  }
  for (int g = 0; g < shape_.kv_heads; ++g) {
    const auto positions = keys_.positions[keys_.ragged() ? static_cast<size_t>(g) : 0];
    be.AttentionMass(HeadInput(in, g, positions), weights, lists.Rows(g, 1));
  }
}

AttentionInput Observer::Last(int64_t queries) const {
  const int64_t count = std::min(queries, tail_);
  return {shape_,
          ws_.tail_q.view().Rows(tail_ - count, count),
          keys_.keys,
          keys_.values,
          query_positions_.subspan(static_cast<size_t>(rows_ - count)),
          keys_.positions.front()};
}

void Observer::Finish(Observation& seen, Backend& be) {
  FlushSum(be);
  for (const Needs::Mass& mass : needs_.masses) {
    const MutableTensorView lists = seen.AddMass(mass, ListsOf(mass, shape_));
    if (mass.queries == Needs::kAllQueries) {
      const TensorView sum = column_sums_[mass.per_kv_head ? 1 : 0].view();
      for (int64_t i = 0; i < sum.rows; ++i)
        std::memcpy(lists.RowBytes(i), sum.RowBytes(i), static_cast<size_t>(sum.stride));
      continue;
    }
    const AttentionInput in = Last(mass.queries);
    Mass(in, Linspace(mass.last_weight, in.queries.rows), mass.per_kv_head, lists, be);
  }
  if (units_ != nullptr) units_->AddQueries(ws_.tail_q.view());
  for (const Needs::Units& u : needs_.unit_scores) {
    if (seen.phase == Phase::kDecode) {
      units_->Score(be, seen.AddUnitScores(u, units_->units()));
      continue;
    }
    const int64_t units = (keys_.keys.rows + u.unit - 1) / u.unit;
    be.UnitScores(Last(u.queries), u.unit, u.pool, seen.AddUnitScores(u, units));
  }
}

}  // namespace coppice
