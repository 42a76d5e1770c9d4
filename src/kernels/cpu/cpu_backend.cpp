#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/cpu_info.h"
#include "base/threads.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/decode_products.h"
#include "kernels/cpu/int_dot.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/mean_rows.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/recurrence.h"
#include "kernels/op_checks.h"
#include "kernels/reference/rows.h"
#include "kernels/selection.h"

namespace coppice {
namespace {

using cpu::KernelTable;

const KernelTable& Kernels(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return cpu::ScalarKernels();
    case Isa::kAvx2:
      return cpu::Avx2Kernels();
    case Isa::kAvx512:
      return cpu::Avx512Kernels();
    case Isa::kAmx:
      return cpu::AmxKernels();
  }
  return cpu::ScalarKernels();
}

// The kernels of `isa`, with faster ones where the CPU has further instructions.
KernelTable KernelsOf(Isa isa, const CpuFeatures& has, bool exact) {
  KernelTable table = Kernels(isa);
  if (exact) {
    table.attention_bf16 = table.attention_int8 = table.attention;
    table.decode_bf16 = table.decode;
    return table;
  }
  if (isa == Isa::kAvx2) table.attention_bf16 = cpu::Avx2CodeAttention();
  // Scores lose nothing by half the rate: one instruction takes twice the factors.
  if (isa >= Isa::kAvx512 && has.avx512_bf16) table.decode_bf16 = cpu::Avx512Bf16Decode();
  const bool avx512_vnni = isa == Isa::kAvx512 && has.avx512_vnni;
  if (avx512_vnni && has.fast_bf16) table.attention_bf16 = cpu::Avx512Bf16Attention();
  table.attention_int8 = avx512_vnni ? cpu::Avx512Bf16Attention() : table.attention_bf16;
  return table;
}

std::unique_ptr<cpu::Products> FloatProducts(const cpu::ProductContext& context, Isa isa) {
  if (isa == Isa::kScalar) return MakePlainProducts(context);
  return MakePanelProducts(context, isa == Isa::kAvx2 ? cpu::Avx2FloatPanels() : cpu::Avx512FloatPanels());
}

// Null if products with quantised weights stay in fp32.
const cpu::IntDotKernels* IntDots(Isa isa, const CpuFeatures& has, bool exact) {
  if (exact || isa == Isa::kScalar) return nullptr;
  if (isa >= Isa::kAvx512 && has.avx512_vnni) return &cpu::Avx512VnniIntDots();
  return has.avx_vnni ? &cpu::AvxVnniIntDots() : &cpu::Avx2IntDots();
}

// Rows per piece of a loop over rows of `cols` values. Handing out pieces of fewer than about 16k values
// costs more than computing them.
int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

const float* In(const TensorView& t, int64_t row) { return reinterpret_cast<const float*>(t.RowBytes(row)); }
float* Out(const MutableTensorView& t, int64_t row) { return reinterpret_cast<float*>(t.RowBytes(row)); }

// IntDotTask::ahead: Intel's prefetcher stops at pages.
constexpr int64_t kPageAhead = 16384;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendOptions& options, Isa isa, const CpuFeatures& has)
      : isa_(isa),
        exact_(options.exact),
        cache_type_(options.cache_type.value_or(exact_ ? DType::kF32 : DType::kBF16)),
        kernels_(KernelsOf(isa, has, exact_)),
        pool_(options.threads > 0 ? options.threads : UsableCores()),
        decode_products_(kernels_, IntDots(isa, has, exact_), has.intel ? kPageAhead : 0, pool_),
        attention_(kernels_, pool_),
        recurrence_(kernels_, pool_) {
    const cpu::ProductContext context{kernels_, pool_};
    const auto set = [&](Form form, std::unique_ptr<cpu::Products> products) {
      products_[static_cast<size_t>(form)] = std::move(products);
    };
    set(Form::kFloats, FloatProducts(context, isa));
    if (exact_) return;
    if (isa == Isa::kAvx2) {
      const auto panels = has.avx_vnni ? cpu::AvxVnniPanels : cpu::Avx2IntPanels;
      set(Form::kCodes, MakePanelProducts(context, panels(options.fast)));
      if (!has.avx_vnni) {
        set(Form::kNibbles, MakePanelProducts(context, cpu::Avx2NibblePanels(false)));
        set(Form::kShiftedNibbles, MakePanelProducts(context, cpu::Avx2NibblePanels(true)));
      }
    }
    const bool avx512 = isa == Isa::kAvx512;
    if (avx512 && has.fast_bf16) set(Form::kBf16, MakePanelProducts(context, cpu::Avx512Bf16Panels()));
    if (avx512 && has.avx512_vnni)
      set(Form::kCodes, MakePanelProducts(context, cpu::Avx512VnniPanels(options.fast)));
    if (isa != Isa::kAmx) return;
    set(Form::kBf16, MakePanelProducts(context, cpu::AmxBf16Panels()));
    set(Form::kCodes, MakePanelProducts(context, cpu::AmxIntPanels()));
  }

  std::string_view name() const override { return "cpu"; }
  std::string_view isa() const override { return IsaName(isa_); }
  int threads() const override { return pool_.size(); }
  DType cache_dtype() const override { return cache_type_; }

  void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) override {
    CheckParts(parts);
    const cpu::WeightRows rows(parts);
    packed.outputs = rows.rows();
    packed.gated = false;
    PackRows(parts, packed);
  }

  void PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                 PackedMatrix& packed) override {
    COPPICE_CHECK(gate.rows == up.rows && gate.cols == up.cols);
    packed.outputs = gate.rows;
    packed.gated = true;
    packed.activation = activation;
    PackRows(std::array{gate, up}, packed);
  }

  void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                   MutableTensorView y) override;

  void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                     MutableTensorView y) override {
    DecodeProducts(std::array{DecodeTask{x, w, bias, y}});
  }

  void DecodeProducts(std::span<const DecodeTask> tasks) override {
    for (const DecodeTask& task : tasks) CheckProduct(task.x, task.w.rows, task.w.cols, task.bias, task.y);
    decode_products_.Run(tasks);
  }

  void Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
             MutableTensorView y) override {
    CheckEmbed(table, ids, y);
    const auto dequantize = kernels_.dequantize[static_cast<size_t>(table.dtype)];
    EachRow(y, [&](int64_t i) {
      dequantize(table.RowBytes(ids[static_cast<size_t>(i)]), table.cols, Out(y, i));
      for (float& v : y.Row<float>(i)) v *= scale;
    });
  }

  void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) override {
    CheckRmsNorm(x, weight, y);
    EachRow(y, [&](int64_t i) {
      for (int64_t c = 0; c < x.cols; c += weight.cols)
        kernels_.rms_norm(In(x, i) + c, In(weight, 0), weight.cols, eps, Out(y, i) + c);
    });
  }

  void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                 MutableTensorView y) override {
    CheckNorm(x, weight, y);
    CheckNorm(x, bias, y);
    EachRow(y, [&](int64_t i) {
      kernels_.layer_norm(In(x, i), In(weight, 0), In(bias, 0), x.cols, eps, Out(y, i));
    });
  }

  void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& table) override {
    CheckRope(x, head_dim, positions, table);
    EachRow(x, [&](int64_t i) {
      const int32_t p = positions[static_cast<size_t>(i)];
      kernels_.rope(Out(x, i), x.cols / head_dim, head_dim, In(table.cos, p), In(table.sin, p),
                    table.cos.cols, table.interleaved);
    });
  }

  void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) override {
    CheckSameShape(gate, up);
    const auto gate_mul = kernels_.gate_mul[static_cast<size_t>(activation)];
    EachRow(gate, [&](int64_t i) { gate_mul(Out(gate, i), In(up, i), gate.cols); });
  }

  void Gelu(MutableTensorView x) override {
    CheckSameShape(x, x);
    EachRow(x, [&](int64_t i) { kernels_.gelu(Out(x, i), x.cols); });
  }

  void Scale(MutableTensorView x, float factor) override {
    CheckSameShape(x, x);
    EachRow(x, [&](int64_t i) {
      for (float& value : x.Row<float>(i)) value *= factor;
    });
  }

  void Add(const TensorView& x, MutableTensorView y) override {
    CheckSameShape(x, y);
    EachRow(y, [&](int64_t i) { kernels_.add(In(x, i), x.cols, Out(y, i)); });
  }

  void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override;

  void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) override {
    CheckScatterAddRows(x, rows, y);
    EachRow(x, [&](int64_t i) { kernels_.add(In(x, i), x.cols, Out(y, rows[static_cast<size_t>(i)])); });
  }

  void AddScaledRows(const TensorView& x, std::span<const int32_t> rows, std::span<const float> scales,
                     MutableTensorView y) override {
    CheckAddScaledRows(x, rows, scales, y);
    EachRow(x, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      reference::AddScaled(x.Row<float>(i), scales[at], y.Row<float>(rows[at]));
    });
  }

  void Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to) override;

  void Convert(const TensorView& x, MutableTensorView y) override {
    CheckConvert(x, y);
    EachRow(y, [&](int64_t i) {
      uint16_t* narrow = reinterpret_cast<uint16_t*>(y.RowBytes(i));
      if (y.dtype == DType::kF16) kernels_.to_f16(In(x, i), x.cols, narrow);
      if (y.dtype == DType::kBF16) kernels_.to_bf16(In(x, i), x.cols, narrow);
      if (y.dtype == DType::kQ8_0) kernels_.to_q8_0(In(x, i), x.cols, y.RowBytes(i));
      if (y.dtype == DType::kF32) std::memmove(y.RowBytes(i), x.RowBytes(i), static_cast<size_t>(x.cols) * 4);
    });
  }

  void MeanRows(const TensorView& x, int64_t block, MutableTensorView means) override {
    cpu::MeanRows(kernels_, pool_, x, block, means);
  }

  void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
             std::span<const RecurrenceRows> sequences) override {
    recurrence_.Recur(shape, weights, sequences);
  }
  void Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                MutableTensorView y) override {
    recurrence_.Convolve(x, before, by, y);
  }

  void Attention(const AttentionInput& in, MutableTensorView out) override { attention_.Attention(in, out); }
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass) override {
    attention_.AttentionMass(in, query_weights, pool, mass);
  }
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights) override {
    attention_.AttentionWeights(in, weights);
  }
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out) override {
    attention_.SparseAttention(in, pattern, first_query, out);
  }
  void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                       MutableTensorView out) override {
    attention_.DecodeAttention({&in, 1}, pattern, out);
  }
  void DecodeAttentions(std::span<const AttentionInput> inputs, MutableTensorView out) override {
    attention_.DecodeAttention(inputs, {}, out);
  }
  void DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                           MutableTensorView out) override {
    attention_.DecodeAttentionOver(in, rows, out);
  }
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores) override {
    attention_.UnitScores(in, unit, pool, unit_scores);
  }

  TokenSet TopK(const TensorView& scores, int64_t k) override { return SelectTopK(scores, k); }
  TokenSet SmallestSetWithMass(const TensorView& scores, double eta) override {
    return SelectSmallestSetWithMass(scores, eta);
  }

 private:
  // The layouts of packed weights.
  enum class Form { kFloats, kBf16, kCodes, kNibbles, kShiftedNibbles };  // in order of falling precision
  static constexpr size_t kForms = 5;

  // fp32 weights keep their precision, because a user who stores a model in fp32 wants it. Matrices with
  // fewer than 64 inputs keep theirs, because nothing would be gained.
  Form FormOf(const TensorView& w) const {
    constexpr int64_t kFewestInputs = 64;
    if (w.dtype == DType::kF32 || w.cols < kFewestInputs) return Form::kFloats;
    if (w.dtype == DType::kQ4_0 && Has(Form::kNibbles)) return Form::kNibbles;
    const bool shifted = w.dtype == DType::kQ4_1 || w.dtype == DType::kQ4_K;
    if (shifted && Has(Form::kShiftedNibbles)) return Form::kShiftedNibbles;
    if (Info(w.dtype).block_elements > 1 && Has(Form::kCodes)) return Form::kCodes;
    return Has(Form::kBf16) ? Form::kBf16 : Form::kFloats;
  }
  bool Has(Form form) const { return products_[static_cast<size_t>(form)] != nullptr; }
  // Stacked parts use the most precise of their forms; panels of nibbles hold one type.
  void PackRows(std::span<const TensorView> parts, PackedMatrix& packed) {
    Form form = FormOf(parts.front());
    for (const TensorView& part : parts) {
      form = std::min(form, FormOf(part));
      if (part.dtype != parts.front().dtype) form = std::min(form, Form::kCodes);
    }
    packed.form = static_cast<int>(form);
    packed.inputs = parts.front().cols;
    if (packed.outputs > 0 && packed.inputs > 0) Of(packed.form).Pack(cpu::WeightRows(parts), packed);
  }
  cpu::Products& Of(int form) { return *products_[static_cast<size_t>(form)]; }
  template <typename Body>
  void EachRow(const TensorView& y, Body body) {
    if (y.empty()) return;
    pool_.For(y.rows, RowGrain(y.cols), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  }

  Isa isa_;
  bool exact_;
  DType cache_type_;
  const KernelTable kernels_;
  ThreadPool pool_;
  cpu::DecodeProductOps decode_products_;
  cpu::AttentionOps attention_;
  cpu::RecurrenceOps recurrence_;
  Tensor stored_;  // the result of a Products without ends()
  std::array<std::unique_ptr<cpu::Products>, kForms>
      products_;  // null if the CPU has no kernels for the form
};

void CpuBackend::ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias,
                             ProductEnd end, MutableTensorView y) {
  CheckProduct(x, w, bias, y);
  if (w.outputs == 0 || x.rows == 0) return;
  cpu::Products& products = Of(w.form);
  if (products.ends() || (end == ProductEnd::kStore && !w.gated)) {
    products.Product(x, w, bias, end, y);
    return;
  }
  stored_.Resize(DType::kF32, x.rows, w.gated ? 2 * w.outputs : w.outputs);
  const MutableTensorView all = stored_.mutable_view();
  products.Product(x, w, bias, ProductEnd::kStore, all);
  const MutableTensorView result = all.Cols(0, w.outputs);
  EachRow(y, [&](int64_t i) {
    if (w.gated)
      kernels_.gate_mul[static_cast<size_t>(w.activation)](Out(result, i), In(all, i) + w.outputs, w.outputs);
    if (end == ProductEnd::kAdd) {
      kernels_.add(In(result, i), w.outputs, Out(y, i));
    } else {
      std::memcpy(y.RowBytes(i), result.RowBytes(i), static_cast<size_t>(w.outputs) * 4);
    }
  });
}

void CpuBackend::Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to) {
  const auto used = static_cast<size_t>(rule.used);
  pool_.For(logits.rows, RowGrain(16 * logits.cols), [&](int64_t begin, int64_t end, int) {
    const size_t first = static_cast<size_t>(begin) * used;
    const size_t count = static_cast<size_t>(end - begin) * used;
    RouteRows(logits.Rows(begin, end - begin), bias, rule,
              {to.experts.subspan(first, count), to.weights.subspan(first, count)});
  });
}

void CpuBackend::GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) {
  CheckGatherRows(x, rows, y);
  const int64_t bytes = BytesOf(x.dtype, x.cols);
  if (bytes == 0 || rows.empty()) return;
  if (y.data != x.data) {
    EachRow(y, [&](int64_t i) {
      std::memcpy(y.RowBytes(i), x.RowBytes(rows[static_cast<size_t>(i)]), static_cast<size_t>(bytes));
    });
    return;
  }
  // In place, a row must be read before another thread overwrites it, so threads divide the columns. Within a
  // column, rows go in ascending order, and an ascending list only moves rows towards the front.
  constexpr int64_t kColumnBytes = 512;
  pool_.For(bytes, kColumnBytes, [&](int64_t begin, int64_t end, int) {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memmove(y.RowBytes(static_cast<int64_t>(i)) + begin, x.RowBytes(rows[i]) + begin,
                   static_cast<size_t>(end - begin));
    }
  });
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackendForIsa(const BackendOptions& options, Isa isa,
                                              const CpuFeatures& features) {
  return std::make_unique<CpuBackend>(options, isa, features);
}

std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options) {
  return MakeCpuBackendForIsa(options, ChooseIsa());
}

}  // namespace coppice
