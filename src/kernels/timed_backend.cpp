#include "kernels/timed_backend.h"

#include <chrono>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

// Adds the time until the end of the scope, even if the operation throws; does nothing without `times`.
class Span {
 public:
  Span(OpTimes* times, OpKind kind, Backend& of) : times_(times), kind_(static_cast<size_t>(kind)), of_(of) {}
  ~Span() {
    if (times_ == nullptr) return;
    try {
      of_.Finish();
    } catch (...) {  // a destructor must not throw, and a device that failed fails the next operation too
    }
    times_->seconds[kind_] += std::chrono::duration<double>(Clock::now() - begin_).count();
    ++times_->calls[kind_];
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  OpTimes* times_;
  size_t kind_;
  Backend& of_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

double OpTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

OpTimes operator-(const OpTimes& later, const OpTimes& earlier) {
  OpTimes between = later;
  for (size_t k = 0; k < kOpKindNames.size(); ++k) {
    between.seconds[k] -= earlier.seconds[k];
    between.calls[k] -= earlier.calls[k];
  }
  return between;
}

TimedBackend::TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {
  COPPICE_CHECK(inner_ != nullptr);
}

void TimedBackend::PackParts(std::span<const TensorView> parts, PackedMatrix& packed) {
  const Span span(Timed(), OpKind::kPack, *inner_);
  inner_->PackParts(parts, packed);
}

void TimedBackend::PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                             PackedMatrix& packed) {
  const Span span(Timed(), OpKind::kPack, *inner_);
  inner_->PackGated(gate, up, activation, packed);
}

void TimedBackend::ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias,
                               ProductEnd end, MutableTensorView y) {
  const Span span(Timed(), OpKind::kProduct, *inner_);
  inner_->ProductInto(x, w, bias, end, y);
}

void TimedBackend::DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                                 MutableTensorView y) {
  const Span span(Timed(), OpKind::kDecodeProduct, *inner_);
  inner_->DecodeProduct(x, w, bias, y);
}

void TimedBackend::DecodeProducts(std::span<const DecodeTask> tasks) {
  const Span span(Timed(), OpKind::kDecodeProduct, *inner_);
  inner_->DecodeProducts(tasks);
}

void TimedBackend::Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
                         MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Embed(table, ids, scale, y);
}

void TimedBackend::RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->RmsNorm(x, weight, eps, y);
}

void TimedBackend::LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                             MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->LayerNorm(x, weight, bias, eps, y);
}

void TimedBackend::Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
                        const RopeTable& table) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Rope(x, head_dim, positions, table);
}

void TimedBackend::GateMul(MutableTensorView gate, const TensorView& up, Activation activation) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->GateMul(gate, up, activation);
}

void TimedBackend::Gelu(MutableTensorView x) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Gelu(x);
}

void TimedBackend::Scale(MutableTensorView x, float factor) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Scale(x, factor);
}

void TimedBackend::Add(const TensorView& x, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Add(x, y);
}

void TimedBackend::GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->GatherRows(x, rows, y);
}

void TimedBackend::ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->ScatterAddRows(x, rows, y);
}

void TimedBackend::AddScaledRows(const TensorView& x, std::span<const int32_t> rows,
                                 std::span<const float> scales, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->AddScaledRows(x, rows, scales, y);
}

void TimedBackend::Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule,
                         Routes to) {
  const Span span(Timed(), OpKind::kSelection, *inner_);
  inner_->Route(logits, bias, rule, to);
}

void TimedBackend::Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                         std::span<const RecurrenceRows> sequences) {
  const Span span(Timed(), OpKind::kRecurrence, *inner_);
  inner_->Recur(shape, weights, sequences);
}

void TimedBackend::Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                            MutableTensorView y) {
  const Span span(Timed(), OpKind::kRecurrence, *inner_);
  inner_->Convolve(x, before, by, y);
}

void TimedBackend::Convert(const TensorView& x, MutableTensorView y) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->Convert(x, y);
}

void TimedBackend::MeanRows(const TensorView& x, int64_t block, MutableTensorView means) {
  const Span span(Timed(), OpKind::kRows, *inner_);
  inner_->MeanRows(x, block, means);
}

void TimedBackend::Attention(const AttentionInput& in, MutableTensorView out) {
  const Span span(Timed(), OpKind::kAttention, *inner_);
  inner_->Attention(in, out);
}

void TimedBackend::AttentionMass(const AttentionInput& in, std::span<const float> query_weights,
                                 MassPool pool, MutableTensorView mass) {
  const Span span(Timed(), OpKind::kScoring, *inner_);
  inner_->AttentionMass(in, query_weights, pool, mass);
}

void TimedBackend::AttentionWeights(const AttentionInput& in, MutableTensorView weights) {
  const Span span(Timed(), OpKind::kScoring, *inner_);
  inner_->AttentionWeights(in, weights);
}

void TimedBackend::SparseAttention(const AttentionInput& in, const SparsePattern& pattern,
                                   int64_t first_query, MutableTensorView out) {
  const Span span(Timed(), OpKind::kAttention, *inner_);
  inner_->SparseAttention(in, pattern, first_query, out);
}

void TimedBackend::DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                                   MutableTensorView out) {
  const Span span(Timed(), OpKind::kAttention, *inner_);
  inner_->DecodeAttention(in, pattern, out);
}

void TimedBackend::DecodeAttentions(std::span<const AttentionInput> inputs, MutableTensorView out) {
  const Span span(Timed(), OpKind::kAttention, *inner_);
  inner_->DecodeAttentions(inputs, out);
}

void TimedBackend::DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                                       MutableTensorView out) {
  const Span span(Timed(), OpKind::kAttention, *inner_);
  inner_->DecodeAttentionOver(in, rows, out);
}

void TimedBackend::UnitScores(const AttentionInput& in, int unit, KeyPool pool,
                              MutableTensorView unit_scores) {
  const Span span(Timed(), OpKind::kScoring, *inner_);
  inner_->UnitScores(in, unit, pool, unit_scores);
}

TokenSet TimedBackend::TopK(const TensorView& scores, int64_t k) {
  const Span span(Timed(), OpKind::kSelection, *inner_);
  return inner_->TopK(scores, k);
}

TokenSet TimedBackend::SmallestSetWithMass(const TensorView& scores, double eta) {
  const Span span(Timed(), OpKind::kSelection, *inner_);
  return inner_->SmallestSetWithMass(scores, eta);
}

}  // namespace coppice
