#include "kernels/reference/reference_backend.h"

#include <vector>

#include "base/check.h"
#include "formats/quants.h"
#include "kernels/op_checks.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/rows.h"
#include "kernels/selection.h"

namespace coppice {
namespace {

// y[i][column] = x[i] . w + bias for every row i, with w [inputs] one row of the weight.
void Column(const TensorView& x, const float* w, float bias, int64_t column, MutableTensorView y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    y.Row<float>(i)[static_cast<size_t>(column)] = reference::Dot(x.Row<float>(i).data(), w, x.cols) + bias;
  }
}

float BiasOf(const TensorView& bias, int64_t column) {
  return bias.empty() ? 0.0f : bias.Row<float>(0)[static_cast<size_t>(column)];
}

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string_view isa() const override { return "scalar"; }
  int threads() const override { return 1; }
  DType cache_dtype() const override { return DType::kF32; }

  void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) override {
    CheckParts(parts);
    packed.outputs = 0;
    for (const TensorView& part : parts) packed.outputs += part.rows;
    packed.inputs = parts.front().cols;
    packed.gated = false;
    packed.storage.Resize(DType::kF32, packed.outputs, packed.inputs);
    MutableTensorView rows = packed.storage.mutable_view();
    int64_t j = 0;
    for (const TensorView& part : parts) {
      for (int64_t i = 0; i < part.rows; ++i)
        DequantizeRow(part.dtype, part.RowBytes(i), rows.Row<float>(j++));
    }
  }

  void PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                 PackedMatrix& packed) override {
    COPPICE_CHECK(gate.rows == up.rows);
    PackParts(std::vector{gate, up}, packed);
    packed.outputs = gate.rows;
    packed.gated = true;
    packed.activation = activation;
  }

  void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                   MutableTensorView y) override {
    CheckProduct(x, w, bias, y);
    const TensorView rows = w.storage.view();
    COPPICE_CHECK(rows.dtype == DType::kF32 && rows.cols == w.inputs);
    Tensor all(DType::kF32, x.rows, rows.rows);
    for (int64_t j = 0; j < rows.rows; ++j) {
      Column(x, rows.Row<float>(j).data(), BiasOf(bias, j), j, all.mutable_view());
    }
    const MutableTensorView result = all.mutable_view().Cols(0, w.outputs);
    if (w.gated) GateMul(result, all.view().Cols(w.outputs, w.outputs), w.activation);
    for (int64_t i = 0; i < x.rows; ++i) {
      const std::span<const float> from = TensorView(result).Row<float>(i);
      const std::span<float> to = y.Row<float>(i);
      for (size_t j = 0; j < from.size(); ++j) to[j] = end == ProductEnd::kAdd ? from[j] + to[j] : from[j];
    }
  }

  void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                     MutableTensorView y) override {
    CheckProduct(x, w.rows, w.cols, bias, y);
    std::vector<float> row(static_cast<size_t>(w.cols));
    for (int64_t j = 0; j < w.rows; ++j) {
      DequantizeRow(w.dtype, w.RowBytes(j), row);
      Column(x, row.data(), BiasOf(bias, j), j, y);
    }
  }

  void Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
             MutableTensorView y) override {
    reference::Embed(table, ids, scale, y);
  }
  void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) override {
    reference::RmsNorm(x, weight, eps, y);
  }
  void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                 MutableTensorView y) override {
    reference::LayerNorm(x, weight, bias, eps, y);
  }
  void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& table) override {
    reference::Rope(x, head_dim, positions, table);
  }
  void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) override {
    reference::GateMul(gate, up, activation);
  }
  void Gelu(MutableTensorView x) override { reference::Gelu(x); }
  void Add(const TensorView& x, MutableTensorView y) override { reference::Add(x, y); }
  void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override {
    reference::GatherRows(x, rows, y);
  }
  void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override {
    reference::ScatterAddRows(x, rows, y);
  }
  void Convert(const TensorView& x, MutableTensorView y) override { reference::Convert(x, y); }

  void Attention(const AttentionInput& in, MutableTensorView out) override { reference::Attention(in, out); }
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass) override {
    reference::AttentionMass(in, query_weights, pool, mass);
  }
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights) override {
    reference::AttentionWeights(in, weights);
  }
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out) override {
    reference::SparseAttention(in, pattern, first_query, out);
  }
  void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                       MutableTensorView out) override {
    reference::SparseAttention(in, pattern, 0, out);
  }
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) override {
    reference::UnitScores(in, unit, pool, unit_scores);
  }

  TokenSet TopK(const TensorView& scores, int64_t k) override { return SelectTopK(scores, k); }
  TokenSet SmallestSetWithMass(const TensorView& scores, double eta) override {
    return SelectSmallestSetWithMass(scores, eta);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace coppice
