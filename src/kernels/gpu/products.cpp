#include "kernels/gpu/products.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/gpu/attention_operands.h"
#include "kernels/gpu/operands.h"

namespace coppice::gpu {

namespace {

// Bits of a product's `flags`.
constexpr int64_t kMinima = 1;
constexpr int64_t kBias = 2;
constexpr int64_t kAdd = 4;
constexpr int64_t kGated = 8;
constexpr int64_t kNone = 0;

// PackedMatrix::form: the weights one after the other, or gate and up with their rows interleaved in
// `storage`.
enum { kParts, kInterleaved };

// The arrays of a weight that begins at `address`.
struct WeightArrays {
  WeightArrays(CUdeviceptr address, const WeightLayout& l)
      : layout(l),
        codes(address + static_cast<CUdeviceptr>(l.codes.offset)),
        scales(At(address, l.scales)),
        mins(At(address, l.mins)),
        groups(At(address, l.groups)),
        group_mins(At(address, l.group_mins)) {}
  static CUdeviceptr At(CUdeviceptr address, const WeightLayout::Array& array) {
    return array.row_bytes == 0 ? 0 : address + static_cast<CUdeviceptr>(array.offset);
  }
  const WeightLayout& layout;
  CUdeviceptr codes, scales, mins, groups, group_mins;
};

WeightArrays ArraysOf(Gpu& gpu, const TensorView& placed) {
  return {AddressOf(placed.data), gpu.LayoutOfPlaced(placed)};
}

// The weight, placed; `aside` holds it if it was not.
TensorView Placed(Gpu& gpu, const TensorView& w, std::vector<Tensor>& aside) {
  if (gpu.IsPlaced(w)) return w;
  Gpu::Placed placed = gpu.Place(w);
  aside.push_back(std::move(placed.storage));
  return placed.view;
}

std::string Kernel(std::string_view operation, const WeightLayout& layout) {
  return std::string(operation) + "_" + std::string(layout.form);
}

// x as bf16 [rows, k], with zeros beyond the inputs.
CUdeviceptr Narrowed(Gpu& gpu, Operands& op, const Operands::Place& x, const TensorView& shape, int64_t k) {
  const CUdeviceptr narrowed = op.Scratch(shape.rows * k * 2);
  gpu.kernels().Launch("convert_f32_bf16", {shape.rows, CeilDiv(k, 1024)}, x.address, narrowed, shape.cols, k,
                       x.stride, k);
  return narrowed;
}

// cuBLASLt takes plain weights; which of the two multiplies depends on the weight alone.
bool ByCublasLt(Gpu& gpu, const WeightLayout& l) { return l.bits == 16 && gpu.cublaslt() != nullptr; }

// The bias where cuBLASLt may read it.
CUdeviceptr AlignedBias(Gpu& gpu, const ProductCall& c) {
  if (c.bias % CublasLt::kBiasAlignment == 0) return c.bias;
  const int64_t bytes = 4 * c.outputs;
  const CUdeviceptr aligned = gpu.arena().Take(bytes);
  gpu.device().Copy(c.bias, bytes, aligned, bytes, {1, bytes});
  return aligned;
}

// x is narrowed. `gated`: the rows of w are those of gate and up, and the bias has 2 outputs.
void Launch(Gpu& gpu, const WeightArrays& w, const ProductCall& c, bool gated = false) {
  const WeightLayout& l = w.layout;
  if (ByCublasLt(gpu, l) && !gated) {
    ProductCall call = c;
    call.bias = AlignedBias(gpu, c);
    return gpu.cublaslt()->Multiply(call, w.codes, l.k);
  }
  const int64_t width = gated ? 2 * c.outputs : c.outputs;
  const int64_t flags = (l.minima ? kMinima : kNone) | (c.bias != 0 ? kBias : kNone) |
                        (c.add ? kAdd : kNone) | (gated ? kGated : kNone);
  gpu.kernels().Launch(Kernel("product", l), {CeilDiv(c.rows, 128) * CeilDiv(width, 128)}, c.x, w.codes,
                       w.scales, w.mins, w.groups, w.group_mins, c.bias, c.y, c.rows, c.outputs, l.k, l.k,
                       c.y_stride, l.zero, l.group, flags);
}

}  // namespace

void PackParts(Gpu& gpu, std::span<const TensorView> parts, PackedMatrix& packed) {
  packed.copies.clear();
  packed.sources.clear();
  packed.outputs = 0;
  packed.inputs = parts.front().cols;
  packed.gated = false;
  packed.form = kParts;
  for (const TensorView& part : parts) {
    packed.outputs += part.rows;
    packed.sources.push_back(Placed(gpu, part, packed.copies));
  }
}

// Gate and up of one type become one weight, of twice the rows: the product reads x once for both.
void PackGated(Gpu& gpu, const TensorView& gate, const TensorView& up, PackedMatrix& packed) {
  const TensorView parts[] = {gate, up};
  PackParts(gpu, parts, packed);
  packed.outputs = gate.rows;
  packed.gated = true;
  if (gate.dtype != up.dtype || ByCublasLt(gpu, gpu.LayoutOfPlaced(packed.sources[0]))) return;
  const WeightArrays halves[] = {ArraysOf(gpu, packed.sources[0]), ArraysOf(gpu, packed.sources[1])};
  const WeightLayout both = LayoutOf(gate.dtype, 2 * gate.rows, gate.cols);
  packed.form = kInterleaved;
  if (packed.storage.memory() != &gpu.heap()) packed.storage = Tensor(&gpu.heap());
  packed.storage.Resize(DType::kF32, 1, both.bytes / 4);
  const CUdeviceptr to = AddressOf(packed.storage.view().data);
  const std::lock_guard lock(gpu.device().mutex());
  gpu.device().Zero(to, both.bytes, {1, both.bytes});
  for (int half = 0; half < 2; ++half) {
    const CUdeviceptr from = AddressOf(packed.sources[static_cast<size_t>(half)].data);
    for (const auto array : {&WeightLayout::codes, &WeightLayout::scales, &WeightLayout::mins,
                             &WeightLayout::groups, &WeightLayout::group_mins}) {
      const WeightLayout::Array& source = halves[half].layout.*array;
      const WeightLayout::Array& target = both.*array;
      if (source.row_bytes == 0) continue;
      gpu.device().Copy(from + static_cast<CUdeviceptr>(source.offset), source.row_bytes,
                        to + static_cast<CUdeviceptr>(target.offset + half * target.row_bytes),
                        2 * target.row_bytes, {gate.rows, source.row_bytes});
    }
  }
}

void Product(Gpu& gpu, const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
             MutableTensorView y) {
  if (x.rows == 0) return;
  Operands op(gpu);
  const Operands::Place from = op.In(x);
  const Operands::Place to = end == ProductEnd::kAdd ? op.InOut(y) : op.Out(y);
  const CUdeviceptr biases = bias.empty() ? 0 : op.In(bias).address;
  const WeightLayout shape = LayoutOf(DType::kBF16, 1, w.inputs);
  ProductCall call{.x = Narrowed(gpu, op, from, x, shape.k),
                   .bias = biases,
                   .y = to.address,
                   .rows = x.rows,
                   .outputs = w.outputs,
                   .y_stride = to.stride,
                   .add = end == ProductEnd::kAdd};
  if (w.form == kInterleaved) {
    const WeightLayout both = LayoutOf(w.sources.front().dtype, 2 * w.outputs, w.inputs);
    Launch(gpu, {AddressOf(w.storage.view().data), both}, call, /*gated=*/true);
    return op.Finish();
  }
  const auto column = [](CUdeviceptr list, int64_t c) {
    return list == 0 ? list : list + static_cast<CUdeviceptr>(4 * c);
  };
  if (w.gated) {  // of two types, or two products of cuBLASLt
    const CUdeviceptr halves = op.Scratch(x.rows * 2 * w.outputs * 4);
    for (int64_t half = 0; half < 2; ++half) {
      Launch(gpu, ArraysOf(gpu, w.sources[static_cast<size_t>(half)]),
             {.x = call.x,
              .bias = column(biases, half * w.outputs),
              .y = column(halves, half * w.outputs),
              .rows = x.rows,
              .outputs = w.outputs,
              .y_stride = 2 * w.outputs});
    }
    const Grid grid{x.rows, CeilDiv(w.outputs, 1024)};
    gpu.kernels().Launch("silu_mul", grid, halves, column(halves, w.outputs), w.outputs, 2 * w.outputs,
                         2 * w.outputs);
    if (end == ProductEnd::kAdd) {
      gpu.kernels().Launch("add", grid, halves, to.address, w.outputs, 2 * w.outputs, to.stride);
    } else {
      gpu.kernels().Launch("convert_f32_f32", grid, halves, to.address, w.outputs, w.outputs, 2 * w.outputs,
                           to.stride);
    }
    return op.Finish();
  }
  int64_t done = 0;
  for (const TensorView& source : w.sources) {
    ProductCall part = call;
    part.bias = column(biases, done);
    part.y = column(to.address, done);
    part.outputs = source.rows;
    Launch(gpu, ArraysOf(gpu, source), part);
    done += source.rows;
  }
  op.Finish();
}

void DecodeProduct(Gpu& gpu, const TensorView& x, const TensorView& w, const TensorView& bias,
                   MutableTensorView y) {
  if (x.rows == 0 || w.rows == 0) return;
  Operands op(gpu);
  std::vector<Tensor> aside;
  const WeightArrays a = ArraysOf(gpu, Placed(gpu, w, aside));
  const WeightLayout& l = a.layout;
  const Operands::Place from = op.In(x);
  const Operands::Place to = op.Out(y);
  const CUdeviceptr biases = bias.empty() ? 0 : op.In(bias).address;
  const int64_t flags = (l.minima ? kMinima : kNone) | (biases != 0 ? kBias : kNone);
  gpu.kernels().Launch(Kernel("decode_product", l), {CeilDiv(w.rows, 32), CeilDiv(x.rows, 16)}, from.address,
                       a.codes, a.scales, a.mins, a.groups, a.group_mins, biases, to.address, x.rows, w.rows,
                       w.cols, l.k, from.stride, to.stride, l.zero, l.group, flags);
  op.Finish();
}

void Embed(Gpu& gpu, const TensorView& table, std::span<const int32_t> ids, MutableTensorView y) {
  if (ids.empty() || table.cols == 0) return;
  Operands op(gpu);
  const auto m = std::ssize(ids);
  const Operands::Place to = op.Out(y);
  if (!gpu.IsPlaced(table) && Info(table.dtype).block_elements == 1) {
    const Operands::Place from = op.In(table);
    const std::string_view kernel = table.dtype == DType::kF32   ? "embed_f32"
                                    : table.dtype == DType::kF16 ? "embed_f16"
                                                                 : "embed_bf16";
    gpu.kernels().Launch(kernel, {m, CeilDiv(table.cols, 1024)}, from.address, op.List(ids), to.address,
                         table.cols, from.stride, to.stride);
    return op.Finish();
  }
  std::vector<Tensor> aside;
  const WeightArrays a = ArraysOf(gpu, Placed(gpu, table, aside));
  const WeightLayout& l = a.layout;
  if (l.bits == 16) {
    gpu.kernels().Launch("embed_bf16", {m, CeilDiv(table.cols, 1024)}, a.codes, op.List(ids), to.address,
                         table.cols, l.k, to.stride);
    return op.Finish();
  }
  gpu.kernels().Launch(Kernel("embed", l), {CeilDiv(m, 8), CeilDiv(table.cols, 128)}, a.codes, a.scales,
                       a.mins, a.groups, a.group_mins, op.List(ids), to.address, m, table.cols, l.k,
                       to.stride, l.zero, l.group, l.minima ? kMinima : kNone);
  op.Finish();
}

}  // namespace coppice::gpu
