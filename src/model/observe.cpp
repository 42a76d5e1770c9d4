#include "model/observe.h"

#include <algorithm>
#include <numeric>

namespace coppice {

namespace {

// Queries that are added to a column sum together: enough for the kernels to work in tiles, and a fixed
// number, because sums in fp32 depend on how they are grouped.
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

Observer::Observer(Phase phase, const Needs& needs, const AttentionFrame& frame, UnitKeys* units,
                   const Pass& pass)
    : needs_(needs),
      frame_(frame),
      units_(units),
      pass_(pass),
      ws_(pass.workspace),
      be_(pass.backend),
      rows_(std::ssize(frame.query_positions)),
      part_(pass.backend.memory()) {
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
  const int64_t width = int64_t{frame.shape.heads} * frame.shape.head_dim;
  ws_.tail_q.Resize(DType::kF32, tail_, width);
  if (all) ws_.sum_q.Resize(DType::kF32, kSumGroup, width);
  for (const int list : {0, 1}) {
    if (sums_[list]) {
      column_sums_[list] =
          Tensor::Zeros(DType::kF32, list == 0 ? 1 : frame.shape.kv_heads, frame.keys.rows, be_.memory());
    }
  }
}

// Finds the rows that hold the question. All methods of one run get the same question.
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
  const std::vector<int32_t>& positions = frame_.query_positions;
  const auto rows_below = [&](int64_t position) {
    return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
  };
  for (const PositionSpan& span : *of) {
    for (int64_t row = rows_below(span.begin); row < rows_below(span.end); ++row)
      question_rows_.push_back(static_cast<int32_t>(row));
  }
  if (question_rows_.empty()) return;
  if (const auto count = std::ssize(question_rows_); count > most)
    question_rows_.erase(question_rows_.begin(), question_rows_.begin() + (count - most));
  const int32_t shift = positions.back() - positions[static_cast<size_t>(question_rows_.back())];
  for (const int32_t row : question_rows_)
    question_positions_.push_back(positions[static_cast<size_t>(row)] + shift);
  first_row_ = std::min<int64_t>(first_row_, question_rows_.front());
  ws_.question_q.Resize(DType::kF32, std::ssize(question_rows_),
                        int64_t{frame_.shape.heads} * frame_.shape.head_dim);
}

void Observer::MoveQuestionToTheEnd() {
  if (question_rows_.empty() || frame_.rope.cos.empty()) return;
  const int32_t shift =
      question_positions_.back() - frame_.query_positions[static_cast<size_t>(question_rows_.back())];
  if (shift == 0) return;
  const std::vector<int32_t> shifts(question_rows_.size(), shift);
  RotateFurther(ws_.question_q.mutable_view(), frame_.shape.head_dim, shifts, frame_.rope, be_);
}

void Observer::Add(const Tile& tile, const TensorView& q) {
  const int64_t tail_begin = rows_ - tail_;
  const int64_t end = tile.begin + tile.count;
  if (const int64_t row = std::max(tile.begin, tail_begin); row < end)
    CopyRows(q.Rows(row - tile.begin, end - row),
             ws_.tail_q.mutable_view().Rows(row - tail_begin, end - row));
  const auto first = std::lower_bound(question_rows_.begin(), question_rows_.end(), tile.begin);
  for (auto row = first; row != question_rows_.end() && *row < end; ++row) {
    CopyRows(q.Rows(*row - tile.begin, 1),
             ws_.question_q.mutable_view().Rows(row - question_rows_.begin(), 1));
  }
  if (sums_[0] || sums_[1]) AddToSum(tile, q);
}

void Observer::Share(const Deal& deal, Comm& comm) {
  COPPICE_CHECK(!sums_[0] && !sums_[1]);  // SplitRefusal
  std::vector<int32_t> tail_rows(static_cast<size_t>(tail_));
  std::iota(tail_rows.begin(), tail_rows.end(), static_cast<int32_t>(rows_ - tail_));
  const auto share = [&](Tensor& queries, const std::vector<int32_t>& rows) {
    if (rows.empty()) return;
    const auto from = [&](int64_t row) { return std::ranges::lower_bound(rows, row) - rows.begin(); };
    for (int round = 0; round < deal.rounds(); ++round) {
      std::vector<RowRange> ranges = deal.Round(round);
      for (RowRange& range : ranges) range = {from(range.begin), from(range.end()) - from(range.begin)};
      comm.BeginShare(queries.mutable_view(), ranges);
    }
  };
  share(ws_.tail_q, tail_rows);
  share(ws_.question_q, question_rows_);
  comm.FinishShares();
}

void Observer::AddToSum(const Tile& tile, const TensorView& q) {
  COPPICE_CHECK(tile.begin == summed_ + pending_);
  for (int64_t row = 0; row < tile.count;) {
    const int64_t count = std::min(tile.count - row, kSumGroup - pending_);
    CopyRows(q.Rows(row, count), ws_.sum_q.mutable_view().Rows(pending_, count));
    row += count;
    pending_ += count;
    if (pending_ == kSumGroup) FlushSum();
  }
}

void Observer::FlushSum() {
  if (pending_ == 0) return;
  // 256 queries over 32k keys with the heads of a 7b shape take half a second on two cores.
  pass_.control.Pause();
  const AttentionInput in = frame_.Input(ws_.sum_q.view().Rows(0, pending_), summed_);
  for (const int list : {0, 1}) {
    if (!sums_[list]) continue;
    const MutableTensorView sum = column_sums_[list].mutable_view();
    part_.Resize(DType::kF32, sum.rows, sum.cols);
    Mass(in, {.per_kv_head = list == 1}, part_.mutable_view());
    be_.Add(part_.view(), sum);
  }
  summed_ += pending_;
  pending_ = 0;
}

void Observer::Mass(const AttentionInput& in, const Needs::Mass& mass, MutableTensorView lists) const {
  const std::vector<float> weights = Linspace(mass.last_weight, in.queries.rows);
  const auto pool = [&](AttentionInput some, MutableTensorView list) {
    const auto behind = std::lower_bound(some.key_positions.begin(), some.key_positions.end(), mass.sink);
    // Every query must see at least one key, and the first query sees the fewest.
    const bool without =
        mass.sink > 0 && behind != some.key_positions.end() && *behind <= some.query_positions.front();
    const int64_t sinks = without ? behind - some.key_positions.begin() : 0;
    some.keys = some.keys.Rows(sinks, some.keys.rows - sinks);
    if (!some.values.empty()) some.values = some.values.Rows(sinks, some.values.rows - sinks);
    some.key_positions = some.key_positions.subspan(static_cast<size_t>(sinks));
    ZeroRows(list.Cols(0, sinks));
    be_.AttentionMass(some, weights, mass.pool, list.Cols(sinks, list.cols - sinks));
  };
  if (!mass.per_kv_head) {
    COPPICE_CHECK(!frame_.ragged());
    return pool(in, lists);
  }
  for (int g = 0; g < frame_.shape.kv_heads; ++g) {
    pool(HeadInput(in, g, frame_.KeyPositions(g)), lists.Rows(g, 1));
  }
}

AttentionInput Observer::Last(int64_t queries) const {
  const int64_t count = std::min(queries, tail_);
  return frame_.Input(ws_.tail_q.view().Rows(tail_ - count, count), rows_ - count);
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

void Observer::Finish(Observation& seen) {
  FlushSum();
  MoveQuestionToTheEnd();
  for (const Needs::Mass& mass : needs_.masses) {
    const MutableTensorView lists = seen.AddMass(mass, ListsOf(mass, frame_.shape));
    if (mass.queries == Needs::kAllQueries) {
      const TensorView sum = column_sums_[mass.per_kv_head ? 1 : 0].view();
      CopyRows(sum, lists);
      continue;
    }
    Mass(QueriesOf(mass), mass, lists);
  }
  if (units_ != nullptr) units_->AddQueries(ws_.tail_q.view());
  for (const Needs::Units& u : needs_.unit_scores) {
    if (seen.phase == Phase::kDecode) {
      units_->Score(be_, seen.AddUnitScores(u, units_->units()));
      continue;
    }
    const int64_t units = (frame_.keys.rows + u.unit - 1) / u.unit;
    be_.UnitScores(Last(u.queries), u.unit, u.pool, seen.AddUnitScores(u, units));
  }
}

}  // namespace coppice
