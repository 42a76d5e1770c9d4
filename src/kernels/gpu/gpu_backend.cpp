#include "kernels/gpu/gpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_operands.h"
#include "kernels/gpu/products.h"
#include "kernels/op_checks.h"
#include "kernels/selection.h"

namespace coppice {

namespace {

using gpu::CeilDiv;
using gpu::Gpu;
using gpu::Grid;
using gpu::Operands;

// Programs of a kernel that passes over rows: one for each row and 1,024 columns.
Grid RowGrid(const TensorView& x) { return {x.rows, CeilDiv(x.cols, 1024)}; }

// Everything that bits depend on: documents that were read with one are not valid with another.
std::string IsaOf(Gpu& gpu) {
  std::string isa = fmt::format("sm_{}, {}", gpu.device().architecture(), gpu.device().name());
  if (gpu.cublaslt() != nullptr) isa += fmt::format(", cuBLASLt {}", gpu.cublaslt()->version());
  return isa;
}

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(DType cache_type) : gpu_(Gpu::Open()), cache_type_(cache_type), isa_(IsaOf(*gpu_)) {}
  ~GpuBackend() override = default;

  std::string_view name() const override { return "gpu"; }
  std::string_view isa() const override { return isa_; }
  int threads() const override { return gpu_->device().multiprocessors(); }
  DType cache_dtype() const override { return cache_type_; }

  DeviceMemory* memory() const override { return &gpu_->heap(); }
  PlacedWeight PlaceWeight(const TensorView& w, WeightUse use) override {
    if (StaysAsStored(w, use)) {
      Tensor copy(w.dtype, w.rows, w.cols, memory());
      CopyRows(w, copy.mutable_view());
      const TensorView view = copy.view();
      return {std::move(copy), view};
    }
    Gpu::Placed placed = gpu_->Place(w);
    return {std::move(placed.storage), placed.view};
  }
  int64_t PlacedBytes(const TensorView& w, WeightUse use) const override {
    if (StaysAsStored(w, use)) return w.rows * BytesOf(w.dtype, w.cols);
    return gpu::LayoutOf(w.dtype, w.rows, w.cols).bytes;
  }
  void CheckNeeds(const OperationNeeds& needs) const override {
    gpu::CheckHeads(needs.head_dim);
    if (needs.activation != Activation::kSilu)
      throw Error("[gpu] the kernels have no FFN whose gate is not a silu");
    if (needs.query_temperature) throw Error("[gpu] the kernels do not scale queries by their positions");
    if (needs.mixture) throw Error("[gpu] the kernels have no mixtures of experts");
    if (needs.output_gate) throw Error("[gpu] the kernels have no gate on attention's output");
    if (needs.sinks) throw Error("[gpu] the kernels have no attention sinks");
    if (needs.recurrence) throw Error("[gpu] the kernels have no layers with a state");
    if (needs.embedding_scale != 1) throw Error("[gpu] the kernels do not scale embeddings");
  }
  void CheckFits(const RunBytes& bytes) override {
    gpu_->device().Synchronize();  // memory that was freed counts once the stream gets there
    const int64_t free = gpu_->device().FreeBytes();
    if (bytes.total() <= free) return;
    throw Error(
        "[gpu] this does not fit into the memory of {}: weights {} + keys and values {} + workspace {} = {} "
        "bytes, "
        "and {} bytes are free",
        gpu_->device().name(), bytes.weights, bytes.keys_values, bytes.workspace, bytes.total(), free);
  }
  void Finish() override { gpu_->device().Synchronize(); }
  void BeginStep() override { gpu_->device().BeginStep(); }
  void EndStep() override { gpu_->device().EndStep(); }

  void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) override {
    CheckParts(parts);
    gpu::PackParts(*gpu_, parts, packed);
  }
  void PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                 PackedMatrix& packed) override {
    COPPICE_CHECK(activation == Activation::kSilu);  // CheckNeeds
    COPPICE_CHECK(gate.rows == up.rows && gate.cols == up.cols);
    gpu::PackGated(*gpu_, gate, up, packed);
  }
  void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                   MutableTensorView y) override {
    CheckProduct(x, w, bias, y);
    gpu::Product(*gpu_, x, w, bias, end, y);
  }
  void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                     MutableTensorView y) override {
    CheckProduct(x, w.rows, w.cols, bias, y);
    gpu::DecodeProduct(*gpu_, x, w, bias, y);
  }
  void Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
             MutableTensorView y) override {
    COPPICE_CHECK(scale == 1);  // CheckNeeds
    CheckEmbed(table, ids, y);
    gpu::Embed(*gpu_, table, ids, y);
  }

  void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) override {
    CheckRmsNorm(x, weight, y);
    for (int64_t c = 0; c < x.cols; c += weight.cols) {
      Operands op(*gpu_);
      const auto [from, from_stride] = op.In(x.Cols(c, weight.cols));
      const auto [to, to_stride] = op.Out(y.Cols(c, weight.cols));
      Launch("rms_norm", {x.rows}, from, op.In(weight).address, to, weight.cols, from_stride, to_stride, eps);
      op.Finish();
    }
  }
  void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                 MutableTensorView y) override {
    CheckNorm(x, weight, y);
    CheckNorm(x, bias, y);
    Operands op(*gpu_);
    const auto [from, from_stride] = op.In(x);
    const auto [to, to_stride] = op.Out(y);
    Launch("layer_norm", {x.rows}, from, op.In(weight).address, op.In(bias).address, to, x.cols, from_stride,
           to_stride, eps);
    op.Finish();
  }
  void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& table) override {
    CheckRope(x, head_dim, positions, table);
    if (TensorView(x).empty() || table.cos.cols == 0) return;
    Operands op(*gpu_);
    const auto [to, stride] = op.InOut(x);
    const auto [cos, table_stride] = op.In(table.cos);
    const auto [sin, sin_stride] = op.In(table.sin);
    COPPICE_CHECK(table_stride == sin_stride);
    Launch("rope", {x.rows, x.cols / head_dim}, to, op.List(positions), cos, sin, int64_t{head_dim},
           table.cos.cols, stride, table_stride, int64_t{table.interleaved ? 1 : 0});
    op.Finish();
  }
  void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) override {
    COPPICE_CHECK(activation == Activation::kSilu);  // CheckNeeds
    CheckSameShape(gate, up);
    Operands op(*gpu_);
    const auto [to, stride] = op.InOut(gate);
    const auto [from, from_stride] = op.In(up);
    Launch("silu_mul", RowGrid(up), to, from, up.cols, stride, from_stride);
    op.Finish();
  }
  void Gelu(MutableTensorView x) override {
    CheckSameShape(x, x);
    Operands op(*gpu_);
    const auto [to, stride] = op.InOut(x);
    Launch("gelu", RowGrid(x), to, x.cols, stride);
    op.Finish();
  }
  void Add(const TensorView& x, MutableTensorView y) override {
    CheckSameShape(x, y);
    Operands op(*gpu_);
    const auto [from, from_stride] = op.In(x);
    const auto [to, to_stride] = op.InOut(y);
    Launch("add", RowGrid(x), from, to, x.cols, from_stride, to_stride);
    op.Finish();
  }
  void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override {
    CheckGatherRows(x, rows, y);
    if (TensorView(y).empty()) return;
    if (x.memory == y.memory) return KeepRows(x, rows, y);
    Tensor kept(y.dtype, y.rows, y.cols, x.memory);
    KeepRows(x, rows, kept.mutable_view());
    CopyRows(kept.view(), y);
  }
  void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override {
    CheckScatterAddRows(x, rows, y);
    if (x.empty()) return;
    Operands op(*gpu_);
    const auto [from, from_stride] = op.In(x);
    const auto [to, to_stride] = op.InOut(y);
    Launch("scatter_add", RowGrid(x), from, op.List(rows), to, x.cols, from_stride, to_stride);
    op.Finish();
  }
  void Convert(const TensorView& x, MutableTensorView y) override {
    CheckConvert(x, y);
    if (x.empty()) return;
    Operands op(*gpu_);
    const auto [from, from_stride] = op.In(x);
    const auto [to, to_stride] = op.Out(y);
    if (y.dtype == DType::kQ8_0) {
      Launch("convert_f32_q8_0", {x.rows, CeilDiv(x.cols / 32, 32)}, from, to, x.cols, from_stride,
             to_stride);
    } else {
      const std::string_view name = y.dtype == DType::kF32   ? "convert_f32_f32"
                                    : y.dtype == DType::kF16 ? "convert_f32_f16"
                                                             : "convert_f32_bf16";
      Launch(name, RowGrid(x), from, to, x.cols, x.cols, from_stride, to_stride);
    }
    op.Finish();
  }

  void Attention(const AttentionInput& in, MutableTensorView out) override {
    CheckAttention(in, out);
    gpu::Attention(*gpu_, in, out);
  }
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass) override {
    CheckAttentionMass(in, query_weights, mass);
    gpu::AttentionMass(*gpu_, in, query_weights, pool, mass);
  }
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights) override {
    CheckAttentionWeights(in, weights);
    gpu::AttentionWeights(*gpu_, in, weights);
  }
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out) override {
    CheckSparseAttention(in, pattern, first_query, out);
    gpu::SparseAttention(*gpu_, in, pattern, first_query, out);
  }
  void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                       MutableTensorView out) override {
    CheckSparseAttention(in, pattern, 0, out);
    gpu::DecodeAttention(*gpu_, in, pattern, out);
  }
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) override {
    CheckUnitScores(in, unit, unit_scores);
    gpu::UnitScores(*gpu_, in, unit, pool, unit_scores);
  }

  // Scores are in host memory, where the policies read them.
  TokenSet TopK(const TensorView& scores, int64_t k) override {
    const HostRows host(scores);
    return SelectTopK(host.view(), k);
  }
  TokenSet SmallestSetWithMass(const TensorView& scores, double eta) override {
    const HostRows host(scores);
    return SelectSmallestSetWithMass(host.view(), eta);
  }

 private:
  // Whether PlaceWeight copies the tensor as it is, and not into a layout of products.
  static bool StaysAsStored(const TensorView& w, WeightUse use) {
    return use == WeightUse::kVector || (use == WeightUse::kTable && Info(w.dtype).block_elements == 1);
  }
  template <typename... Arguments>
  void Launch(std::string_view kernel, const Grid& grid, const Arguments&... arguments) {
    gpu_->kernels().Launch(kernel, grid, arguments...);
  }

  std::shared_ptr<Gpu> gpu_;
  DType cache_type_;
  std::string isa_;
};

}  // namespace

bool HasGpuKernels() { return !gpu::BuiltArchitectures().empty(); }

std::unique_ptr<Backend> MakeGpuBackend(const BackendOptions& options) {
  if (options.exact) throw Error("[kernels] the gpu backend has no exact arithmetic: its products take bf16");
  const DType type = options.cache_type.value_or(DType::kBF16);
  if (type == DType::kF32)
    throw Error("[kernels] the gpu backend keeps keys and values in bf16 or q8_0, not in F32");
  return std::make_unique<GpuBackend>(type);
}

}  // namespace coppice
