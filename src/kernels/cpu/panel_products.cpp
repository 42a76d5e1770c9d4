// Products over packed panels; panel_kernels.h defines the arithmetic. Weights of any stored type are packed
// once per prompt and layer. Integer panels hold 8-bit codes with a scale per group of a row, whatever the
// stored format.
//
// A task is a panel times a range of rows. Batch invariance: the sums of a row run over K in one order,
// whatever its block and its place there.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

// The most rows of x per task while a panel stays in the cache: enough to repay loading the panel (one load
// per 384 products), and few enough that a tile of rows gives every thread several tasks; before
// it is rounded up to whole blocks.
constexpr int64_t kTaskRows = 384;
// The fewest rows of x worth keeping in the cache while panels pass; with fewer, keeping panels is cheaper.
constexpr int64_t kFewestStaying = 128;
constexpr int64_t kTasksPerThread = 4;

class PanelProducts final : public Products {
 public:
  PanelProducts(const ProductContext& context, const PanelKernels& kernels)
      : context_(context), kernels_(kernels) {}

  bool ends() const override { return true; }
  void Pack(const WeightRows& w, PackedMatrix& packed) override;
  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
               MutableTensorView y) override;

 private:
  bool scaled() const { return kernels_.scaled; }
  int64_t Groups(int64_t inputs) const { return GroupsOf(PanelDepth(inputs), kernels_.group); }
  // The scales, and shifts, of `groups` groups of a strip.
  int64_t ScalesOf(int64_t groups) const { return groups * kStripColumns * (kernels_.shifted ? 2 : 1); }
  int64_t WholeBlocks(int64_t rows) const {
    return (rows + kernels_.block_rows - 1) / kernels_.block_rows * kernels_.block_rows;
  }
  int64_t FloatsOf(int64_t values) const { return values * kernels_.value_bytes / 4; }
  struct RowRange {
    int64_t first;
    int count;
  };
  // A product, except for its rows of x, which PrepareRows packs.
  struct Call {
    const PackedMatrix& w;
    const TensorView& bias;
    ProductEnd end;
    const MutableTensorView& y;
  };
  int64_t Strips(const PackedMatrix& w) const;
  // Columns of y per panel.
  int64_t Columns(const PackedMatrix& w) const { return kernels_.strips * kStripColumns / (w.gated ? 2 : 1); }
  int64_t Panels(const PackedMatrix& w) const { return (w.outputs + Columns(w) - 1) / Columns(w); }
  // The stacked weight rows that form the columns of a strip; none if the strip only pads a panel.
  RowRange RowsOfStrip(const PackedMatrix& w, int64_t strip) const;
  void PackStrip(const WeightRows& w, const PackedMatrix& packed, int64_t strip, std::byte* strip_values,
                 float* strip_scales) const;
  PackStored PackOf(DType type) const;
  void PackStoredStrip(const WeightRows& w, const PackedMatrix& packed, RowRange range,
                       std::byte* strip_values, float* strip_scales) const;
  void PrepareRows(const TensorView& x);
  // The division of a call into tasks.
  struct Cut {
    int64_t rows;  // of x, per task; whole blocks
    bool x_stays;  // consecutive tasks change the panel; else they change the rows
  };
  Cut CutOf(const PackedMatrix& w, int64_t rows) const;
  struct Panel {
    int64_t index;
    const std::byte* strips;
    const float* scales;
    const std::byte* next;  // PanelTask::next_w
  };
  // Multiplies the panel by `rows` rows of x, or as many as are left, starting with `row`.
  void MultiplyPanel(const Call& call, const Panel& panel, int64_t row, int64_t rows) const;
  void MultiplyOnce(const Call& call);

  ProductContext context_;
  const PanelKernels& kernels_;
  // The packed x of the current call, by block: values, and BlockScales.
  Tensor values_;
  Tensor scales_;
  Tensor offsets_;
  std::vector<int32_t> starts_;
  std::vector<float> sums_;
  // By thread: the current panel, for weights that are packed on the fly.
  Tensor panels_;
  Tensor panel_scales_;
};

// A gated panel holds strips of the gate in its first half and the same columns of `up` in its second, so
// both halves of a result are in one block.
int64_t PanelProducts::Strips(const PackedMatrix& w) const {
  if (!w.gated) return StripsOf(w.outputs);
  const int64_t half = kernels_.strips / 2;
  return (StripsOf(w.outputs) + half - 1) / half * kernels_.strips;
}

PanelProducts::RowRange PanelProducts::RowsOfStrip(const PackedMatrix& w, int64_t strip) const {
  int64_t begin = strip * kStripColumns;
  int64_t matrix = 0;
  if (w.gated) {
    const int64_t half = kernels_.strips / 2;
    const int64_t within = strip % kernels_.strips;
    begin = (strip / kernels_.strips * half + within % half) * kStripColumns;
    matrix = within < half ? 0 : w.outputs;
  }
  const int64_t count = std::clamp<int64_t>(w.outputs - begin, 0, kStripColumns);
  return {matrix + begin, static_cast<int>(count)};
}

// Null: rows of this type are dequantised first.
PackStored PanelProducts::PackOf(DType type) const {
  if (type == DType::kQ4_0) return kernels_.pack_q4_0;
  if (type == DType::kQ4_1) return kernels_.pack_q4_1;
  if (type == DType::kQ4_K) return kernels_.pack_q4_k;
  return nullptr;
}

void PanelProducts::PackStoredStrip(const WeightRows& w, const PackedMatrix& packed, RowRange range,
                                    std::byte* strip_values, float* strip_scales) const {
  const DType type = w.parts().front().dtype;
  const std::byte* rows[kStripColumns];
  for (int r = 0; r < range.count; ++r) rows[r] = w.Row(range.first + r);
  for (int64_t begin = 0; begin < packed.inputs; begin += kPackValues) {
    const int64_t count = std::min(kPackValues, packed.inputs - begin);
    const int64_t next = begin + count;
    w.Prefetch(range.first, range.count, next, std::min(kPackValues, packed.inputs - next));
    PackOf(type)(rows, range.count, count, strip_values + begin * kStripColumns,
                 strip_scales + ScalesOf(begin / kernels_.group));
    for (int r = 0; r < range.count; ++r) rows[r] += BytesOf(type, count);
  }
  // The columns' padding, as codes of zero.
  const int64_t padding = PanelDepth(packed.inputs) - packed.inputs;
  std::fill_n(strip_values + packed.inputs * kStripColumns, padding * kStripColumns, std::byte{0x80});
  std::fill_n(strip_scales + ScalesOf(packed.inputs / kernels_.group), ScalesOf(padding / kernels_.group),
              0.0f);
}

void PanelProducts::PackStrip(const WeightRows& w, const PackedMatrix& packed, int64_t strip,
                              std::byte* strip_values, float* strip_scales) const {
  const int64_t depth = PanelDepth(packed.inputs);
  alignas(64) float values[kStripColumns * kPackValues];
  const bool with_steps = scaled() && kernels_.group == kStepValues;
  float steps[kPackValues / kStepValues * kStripColumns] = {};
  const RowRange rows = RowsOfStrip(packed, strip);
  w.Prefetch(rows.first, rows.count, 0, std::min(kPackValues, packed.inputs));
  const DType type = w.parts().front().dtype;
  if (rows.count > 0 && PackOf(type) != nullptr && w.AreAll(type))
    return PackStoredStrip(w, packed, rows, strip_values, strip_scales);
  if (kernels_.pack == nullptr) {  // a strip that only pads a panel
    COPPICE_CHECK(rows.count == 0);
    std::fill_n(strip_values, depth * kStripColumns * kernels_.value_bytes, std::byte{0});
    std::fill_n(strip_scales, ScalesOf(Groups(packed.inputs)), 0.0f);
    return;
  }
  for (int64_t begin = 0; begin < packed.inputs; begin += kPackValues) {
    const int64_t count = std::min(kPackValues, packed.inputs - begin);
    const int64_t padded = std::min(kPackValues, depth - begin);
    // The rows are sixteen streams, more than the hardware prefetcher follows. Without this prefetch, packing
    // Q4_0 waits for a third of its time.
    const int64_t next = begin + count;
    w.Prefetch(rows.first, rows.count, next, std::min(kPackValues, packed.inputs - next));
    for (int r = 0; r < rows.count; ++r) {
      float* row = values + r * kPackValues;
      w.Dequantize(context_.kernels, rows.first + r, begin, count, row);
      std::fill(row + count, row + padded, 0.0f);
      if (with_steps) w.Steps(context_.kernels, rows.first + r, begin, count, steps + r, kStripColumns);
    }
    kernels_.pack(values, rows.count, padded, with_steps ? steps : nullptr,
                  strip_values + begin * kStripColumns * kernels_.value_bytes,
                  scaled() ? strip_scales + begin / kernels_.group * kStripColumns : nullptr);
  }
}

void PanelProducts::Pack(const WeightRows& w, PackedMatrix& packed) {
  packed.sources.clear();
  if (packed.once) {
    packed.sources.assign(w.parts().begin(), w.parts().end());
    return;
  }
  const int64_t strips = Strips(packed);
  packed.storage.Resize(DType::kF32, strips, FloatsOf(PanelDepth(packed.inputs) * kStripColumns));
  packed.scales.Resize(DType::kF32, scaled() ? strips : 0, ScalesOf(Groups(packed.inputs)));
  const MutableTensorView storage = packed.storage.mutable_view();
  const MutableTensorView scales = packed.scales.mutable_view();
  context_.pool.For(strips, 1, [&](int64_t strip, int64_t, int) {
    PackStrip(w, packed, strip, storage.RowBytes(strip),
              scaled() ? scales.Row<float>(strip).data() : nullptr);
  });
}

void PanelProducts::PrepareRows(const TensorView& x) {
  const int64_t block_rows = kernels_.block_rows;
  const int64_t blocks = (x.rows + block_rows - 1) / block_rows;
  const int64_t scales = scaled() ? Groups(x.cols) * block_rows : 0;
  values_.Resize(DType::kF32, blocks, FloatsOf(PanelDepth(x.cols) * block_rows));
  scales_.Resize(DType::kF32, blocks, scales);
  offsets_.Resize(DType::kF32, blocks, scales);
  starts_.resize(static_cast<size_t>(blocks * scales));
  sums_.resize(starts_.size());
  const MutableTensorView values = values_.mutable_view();
  const MutableTensorView scale_rows = scales_.mutable_view();
  const MutableTensorView offset_rows = offsets_.mutable_view();
  context_.pool.For(blocks, 1, [&](int64_t block, int64_t, int) {
    BlockScales of_block = {};
    if (scaled()) {
      of_block = {scale_rows.Row<float>(block).data(), offset_rows.Row<float>(block).data(),
                  starts_.data() + block * scales, sums_.data() + block * scales};
    }
    for (int64_t r = 0; r < block_rows; ++r) {
      // Rows beyond the last are multiplied with their block but never written, so any row's values serve.
      const int64_t row = std::min(block * block_rows + r, x.rows - 1);
      kernels_.prepare(x.Row<float>(row).data(), x.cols, static_cast<int>(r), values.RowBytes(block),
                       of_block);
    }
  });
}

PanelProducts::Cut PanelProducts::CutOf(const PackedMatrix& w, int64_t rows) const {
  const int64_t row_bytes = std::max<int64_t>(1, PanelDepth(w.inputs) * kernels_.value_bytes);
  const int64_t most = kernels_.x_bytes / row_bytes;
  const bool x_stays = most >= kFewestStaying;
  int64_t ranges = (rows + kTaskRows - 1) / kTaskRows;
  if (x_stays) {
    const int64_t for_threads = (kTasksPerThread * context_.pool.size() + Panels(w) - 1) / Panels(w);
    ranges = std::max((rows + most - 1) / most, std::min(for_threads, rows / kFewestStaying));
  }
  // Even ranges: a last one of few rows would load its panels for little.
  const int64_t even = (rows + ranges - 1) / ranges;
  return {WholeBlocks(even), x_stays};
}

void PanelProducts::MultiplyPanel(const Call& call, const Panel& panel, int64_t row, int64_t rows) const {
  const PackedMatrix& w = call.w;
  const int64_t columns = Columns(w);
  const int64_t column = panel.index * columns;
  const int64_t block = row / kernels_.block_rows;
  const TensorView x_scales = scales_.view();
  const float* bias = call.bias.empty() ? nullptr : call.bias.Row<float>(0).data();
  kernels_.multiply({
      .x = values_.view().RowBytes(block),
      .x_scales = scaled() ? x_scales.Row<float>(block).data() : nullptr,
      .x_offsets = scaled() ? offsets_.view().Row<float>(block).data() : nullptr,
      .x_starts = scaled() ? starts_.data() + block * x_scales.cols : nullptr,
      .x_sums = scaled() ? sums_.data() + block * x_scales.cols : nullptr,
      .w = panel.strips,
      .next_w = panel.next,
      .w_scales = panel.scales,
      .bias = bias == nullptr ? nullptr : bias + column,
      .up_bias = bias == nullptr ? nullptr : bias + w.outputs + column,
      .y = call.y.Row<float>(row).data() + column,
      .y_stride = call.y.stride / 4,
      .depth = PanelDepth(w.inputs),
      .rows = std::min(rows, call.y.rows - row),
      .columns = std::min(columns, w.outputs - column),
      .gated = w.gated,
      .activation = w.activation,
      .add = call.end == ProductEnd::kAdd,
  });
}

void PanelProducts::Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias,
                            ProductEnd end, MutableTensorView y) {
  if (x.rows == 0 || w.outputs == 0) return;
  PrepareRows(x);
  const Call call{w, bias, end, y};
  if (!w.sources.empty()) return MultiplyOnce(call);
  COPPICE_CHECK(w.storage.rows() == Strips(w));
  COPPICE_CHECK(w.storage.cols() == FloatsOf(PanelDepth(w.inputs) * kStripColumns));
  const Cut cut = CutOf(w, x.rows);
  const int64_t ranges = (x.rows + cut.rows - 1) / cut.rows;
  const int64_t panels = Panels(w);
  const int64_t whole_panels = Strips(w) / kernels_.strips;
  const TensorView storage = w.storage.view();
  const TensorView w_scales = w.scales.view();
  context_.pool.For(panels * ranges, 1, [&](int64_t task, int64_t, int) {
    const int64_t panel = cut.x_stays ? task % panels : task / ranges;
    const int64_t range = cut.x_stays ? task / panels : task % ranges;
    const int64_t later = task + context_.pool.size();  // what this thread is likely to take next
    const int64_t next = cut.x_stays ? panel + context_.pool.size() : later / ranges;
    const int64_t strip = panel * kernels_.strips;
    MultiplyPanel(call,
                  {panel, storage.RowBytes(strip), scaled() ? w_scales.Row<float>(strip).data() : nullptr,
                   next != panel && next < whole_panels ? storage.RowBytes(next * kernels_.strips) : nullptr},
                  range * cut.rows, cut.rows);
  });
}

// Each thread packs a panel into its own memory and uses it while it is in the thread's cache, so the packed
// matrix never passes through memory. The kernels are those of Product, so the bits are the same.
void PanelProducts::MultiplyOnce(const Call& call) {
  const PackedMatrix& w = call.w;
  const WeightRows rows(w.sources);
  const int64_t values = PanelDepth(w.inputs) * kStripColumns;
  const int64_t scales_of_strip = ScalesOf(Groups(w.inputs));
  panels_.Resize(DType::kF32, context_.pool.size(), kernels_.strips * FloatsOf(values));
  panel_scales_.Resize(DType::kF32, context_.pool.size(), scaled() ? kernels_.strips * scales_of_strip : 0);
  const MutableTensorView panels = panels_.mutable_view();
  const MutableTensorView panel_scales = panel_scales_.mutable_view();
  context_.pool.For(Panels(w), 1, [&](int64_t panel, int64_t, int thread) {
    std::byte* strips = panels.RowBytes(thread);
    float* scales = scaled() ? panel_scales.Row<float>(thread).data() : nullptr;
    const int64_t first = panel * kernels_.strips;
    const int64_t count = std::min<int64_t>(kernels_.strips, Strips(w) - first);
    for (int64_t i = 0; i < count; ++i) {
      PackStrip(rows, w, first + i, strips + i * values * kernels_.value_bytes,
                scaled() ? scales + i * scales_of_strip : nullptr);
    }
    const int64_t task_rows = WholeBlocks(kTaskRows);
    for (int64_t row = 0; row < call.y.rows; row += task_rows)
      MultiplyPanel(call, {panel, strips, scales, nullptr}, row, task_rows);
  });
}

}  // namespace

std::unique_ptr<Products> MakePanelProducts(const ProductContext& context, const PanelKernels& kernels) {
  return std::make_unique<PanelProducts>(context, kernels);
}

}  // namespace coppice::cpu
