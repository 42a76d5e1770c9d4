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
                   std::span<const int32_t> query_positions, const RopeTable& rope, Workspace& ws,
                   UnitKeys* units)
    : needs_(needs),
      shape_(shape),
      keys_(keys),
      query_positions_(query_positions),
      rope_(rope),
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
  if (phase == Phase::kPrefill) FindQuestion();
  const int64_t width = int64_t{shape.heads} * shape.head_dim;
  ws.tail_q.Resize(DType::kF32, tail_, width);
  if (all) ws.sum_q.Resize(DType::kF32, kSumGroup, width);
  for (const int list : {0, 1}) {
    if (sums_[list]) {
      column_sums_[list] = Tensor::Zeros(DType::kF32, list == 0 ? 1 : shape.kv_heads, keys.keys.rows);
    }
  }
}

// The rows whose queries are the question's. Methods of one run are told one question.
void Observer::FindQuestion() {
  int64_t most = 0;
  const std::vector<PositionSpan>* of = nullptr;
  for (const Needs::Mass& mass : needs_.masses) {
    if (mass.of.empty()) continue;
    COPPICE_CHECK(of == nullptr || *of == mass.of);
    of = &mass.of;
    most = std::max(most, mass.queries);
  }
  if (of == nullptr) return;
  const auto rows_below = [&](int64_t position) {
    return std::lower_bound(query_positions_.begin(), query_positions_.end(), position) -
           query_positions_.begin();
  };
  for (const PositionSpan& span : *of) {
    for (int64_t row = rows_below(span.begin); row < rows_below(span.end); ++row)
      question_rows_.push_back(static_cast<int32_t>(row));
  }
  if (question_rows_.empty()) return;
  if (const auto count = std::ssize(question_rows_); count > most)
    question_rows_.erase(question_rows_.begin(), question_rows_.begin() + (count - most));
  const int32_t shift = query_positions_.back() - query_positions_[question_rows_.back()];
  for (const int32_t row : question_rows_)
    question_positions_.push_back(query_positions_[static_cast<size_t>(row)] + shift);
  first_row_ = std::min<int64_t>(first_row_, question_rows_.front());
  ws_.question_q.Resize(DType::kF32, std::ssize(question_rows_), int64_t{shape_.heads} * shape_.head_dim);
}

// Rotations add up: a query that RoPE turned to p is turned on to p + shift. YaRN's factor on cosines and sines
// would enter twice.
void Observer::MoveQuestionToTheEnd(Backend& be) {
  if (question_rows_.empty() || rope_.cos.empty()) return;
  const int32_t shift = question_positions_.back() - query_positions_[question_rows_.back()];
  if (shift == 0) return;
  const MutableTensorView q = ws_.question_q.mutable_view();
  be.Rope(q, shape_.head_dim, std::vector<int32_t>(question_rows_.size(), shift), rope_);
  const float magnitude = rope_.cos.Row<float>(0)[0];  // cos 0 times the factor
  if (magnitude == 1) return;
  const int64_t rotary = 2 * rope_.cos.cols;
  for (int64_t row = 0; row < q.rows; ++row) {
    const std::span<float> x = q.Row<float>(row);
    for (int64_t i = 0; i < q.cols; ++i) {
      if (i % shape_.head_dim < rotary) x[static_cast<size_t>(i)] /= magnitude;
    }
  }
}

void Observer::Add(const Tile& tile, const TensorView& q, Backend& be) {
  const int64_t tail_begin = rows_ - tail_;
  const auto bytes = static_cast<size_t>(BytesOf(DType::kF32, q.cols));
  for (int64_t row = std::max(tile.begin, tail_begin); row < tile.begin + tile.count; ++row) {
    std::memcpy(ws_.tail_q.mutable_view().RowBytes(row - tail_begin), q.RowBytes(row - tile.begin), bytes);
  }
  const auto first = std::lower_bound(question_rows_.begin(), question_rows_.end(), tile.begin);
  for (auto row = first; row != question_rows_.end() && *row < tile.begin + tile.count; ++row) {
    std::memcpy(ws_.question_q.mutable_view().RowBytes(row - question_rows_.begin()),
                q.RowBytes(*row - tile.begin), bytes);
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
    Mass(in, {.per_kv_head = list == 1}, part_.mutable_view(), be);
    be.Add(part_.view(), sum);
  }
  summed_ += pending_;
  pending_ = 0;
}

void Observer::Mass(const AttentionInput& in, const Needs::Mass& mass, MutableTensorView lists,
                    Backend& be) const {
  const std::vector<float> weights = Linspace(mass.last_weight, in.queries.rows);
  const auto pool = [&](AttentionInput some, MutableTensorView list) {
    const auto behind = std::lower_bound(some.key_positions.begin(), some.key_positions.end(), mass.sink);
    // Every query must see a key: the first is the one with the fewest.
    const bool without =
        mass.sink > 0 && behind != some.key_positions.end() && *behind <= some.query_positions.front();
    const int64_t sinks = without ? behind - some.key_positions.begin() : 0;
    some.keys = some.keys.Rows(sinks, some.keys.rows - sinks);
    if (!some.values.empty()) some.values = some.values.Rows(sinks, some.values.rows - sinks);
    some.key_positions = some.key_positions.subspan(static_cast<size_t>(sinks));
    std::fill_n(list.Row<float>(0).begin(), sinks, 0.0f);
    be.AttentionMass(some, weights, mass.pool, list.Cols(sinks, list.cols - sinks));
  };
  if (!mass.per_kv_head) {
    COPPICE_CHECK(!keys_.ragged());
    return pool(in, lists);
  }
  for (int g = 0; g < shape_.kv_heads; ++g) {
    const auto positions = keys_.positions[keys_.ragged() ? static_cast<size_t>(g) : 0];
    pool(HeadInput(in, g, positions), lists.Rows(g, 1));
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

AttentionInput Observer::QueriesOf(const Needs::Mass& mass) const {
  if (mass.of.empty() || question_rows_.empty()) return Last(mass.queries);
  const auto all = std::ssize(question_rows_);
  const int64_t count = std::min<int64_t>(mass.queries, all);
  AttentionInput in = Last(1);
  in.queries = ws_.question_q.view().Rows(all - count, count);
  in.query_positions = std::span(question_positions_).last(static_cast<size_t>(count));
  return in;
}

void Observer::Finish(Observation& seen, Backend& be) {
  FlushSum(be);
  MoveQuestionToTheEnd(be);
  for (const Needs::Mass& mass : needs_.masses) {
    const MutableTensorView lists = seen.AddMass(mass, ListsOf(mass, shape_));
    if (mass.queries == Needs::kAllQueries) {
      const TensorView sum = column_sums_[mass.per_kv_head ? 1 : 0].view();
      for (int64_t i = 0; i < sum.rows; ++i)
        std::memcpy(lists.RowBytes(i), sum.RowBytes(i), static_cast<size_t>(sum.stride));
      continue;
    }
    Mass(QueriesOf(mass), mass, lists, be);
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
