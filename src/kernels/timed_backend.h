// A backend that wraps another and measures wall time per kind of operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/backend.h"

namespace coppice {

enum class OpKind { kPack, kProduct, kDecodeProduct, kAttention, kScoring, kRows, kSelection, kRecurrence };
inline constexpr std::array<std::string_view, 8> kOpKindNames = {
    "pack", "product", "decode_product", "attention", "scoring", "rows", "selection", "recurrence"};

// Seconds and calls per kind. Scoring is AttentionMass, AttentionWeights and UnitScores; rows are the
// operations from Embed to MeanRows, which pass over a matrix once; the recurrence is Recur and Convolve.
struct OpTimes {
  std::array<double, kOpKindNames.size()> seconds = {};
  std::array<int64_t, kOpKindNames.size()> calls = {};

  double of(OpKind kind) const { return seconds[static_cast<size_t>(kind)]; }
  double total() const;
};
OpTimes operator-(const OpTimes& later, const OpTimes& earlier);

// Forwards every operation and waits for its end; results are unchanged. The two clock readings per call (50
// ns) are negligible beside an operation on a layer's matrices. On a device, the waits are not:
// SetTiming(false).
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inner);

  // Totals since construction.
  const OpTimes& times() const { return times_; }
  // Whether operations are timed and waited for; true at first. Call it between steps.
  void SetTiming(bool on) { timing_ = on; }

  std::string_view name() const override { return inner_->name(); }
  std::string_view isa() const override { return inner_->isa(); }
  int threads() const override { return inner_->threads(); }
  DType cache_dtype() const override { return inner_->cache_dtype(); }
  DeviceMemory* memory() const override { return inner_->memory(); }
  PlacedWeight PlaceWeight(const TensorView& w, WeightUse use) override {
    return inner_->PlaceWeight(w, use);
  }
  int64_t PlacedBytes(const TensorView& w, WeightUse use) const override {
    return inner_->PlacedBytes(w, use);
  }
  void CheckNeeds(const OperationNeeds& needs) const override { inner_->CheckNeeds(needs); }
  void CheckFits(const RunBytes& bytes) override { inner_->CheckFits(bytes); }
  void Finish() override { inner_->Finish(); }
  // While operations are timed, a step is not collected, because then no operation would have a time of its
  // own.
  void BeginStep() override {
    if (!timing_) inner_->BeginStep();
  }
  void EndStep() override {
    if (!timing_) inner_->EndStep();
  }

  void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) override;
  void PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                 PackedMatrix& packed) override;
  void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                   MutableTensorView y) override;
  void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                     MutableTensorView y) override;
  void DecodeProducts(std::span<const DecodeTask> tasks) override;
  void Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
             MutableTensorView y) override;
  void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) override;
  void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                 MutableTensorView y) override;
  void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& table) override;
  void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) override;
  void Gelu(MutableTensorView x) override;
  void Scale(MutableTensorView x, float factor) override;
  void Add(const TensorView& x, MutableTensorView y) override;
  void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override;
  void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override;
  void AddScaledRows(const TensorView& x, std::span<const int32_t> rows, std::span<const float> scales,
                     MutableTensorView y) override;
  void Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to) override;
  void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
             std::span<const RecurrenceRows> sequences) override;
  void Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                MutableTensorView y) override;
  void Convert(const TensorView& x, MutableTensorView y) override;
  void MeanRows(const TensorView& x, int64_t block, MutableTensorView means) override;
  void Attention(const AttentionInput& in, MutableTensorView out) override;
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass) override;
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights) override;
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out) override;
  void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                       MutableTensorView out) override;
  void DecodeAttentions(std::span<const AttentionInput> inputs, MutableTensorView out) override;
  void DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                           MutableTensorView out) override;
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) override;
  TokenSet TopK(const TensorView& scores, int64_t k) override;
  TokenSet SmallestSetWithMass(const TensorView& scores, double eta) override;

 private:
  OpTimes* Timed() { return timing_ ? &times_ : nullptr; }

  std::unique_ptr<Backend> inner_;
  OpTimes times_;
  bool timing_ = true;
};

}  // namespace coppice
