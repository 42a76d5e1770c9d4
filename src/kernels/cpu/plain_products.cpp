#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kColumnsPerTask = 16;
constexpr int64_t kRowsPerTask = 64;  // of x, which stay in cache while a task's columns pass

class PlainProducts final : public Products {
 public:
  explicit PlainProducts(const ProductContext& context) : context_(context) {}

  void Pack(const TensorView& w, PackedMatrix& packed) override {
    packed.outputs = w.rows;
    packed.inputs = w.cols;
    packed.storage.Resize(DType::kF32, w.rows, w.cols);
    MutableTensorView rows = packed.storage.mutable_view();
    const auto dequantize = context_.kernels.dequantize[static_cast<size_t>(w.dtype)];
    context_.pool.For(w.rows, kColumnsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) dequantize(w.RowBytes(i), w.cols, rows.Row<float>(i).data());
    });
  }

  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias,
               MutableTensorView y) override {
    const TensorView rows = w.storage.view();
    COPPICE_CHECK(rows.dtype == DType::kF32 && rows.rows == w.outputs && rows.cols == w.inputs);
    if (x.rows == 0 || w.outputs == 0) return;
    const float* bias_row = bias.empty() ? nullptr : bias.Row<float>(0).data();
    const auto dot = context_.kernels.dot[static_cast<size_t>(DType::kF32)];
    context_.pool.For(w.outputs, kColumnsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = 0; i < x.rows; i += kRowsPerTask) {
        const int64_t some = std::min(kRowsPerTask, x.rows - i);
        for (int64_t o = begin; o < end; ++o) {
          dot(rows.RowBytes(o), reinterpret_cast<const float*>(x.RowBytes(i)), x.stride / 4, some, w.inputs,
              bias_row == nullptr ? 0.0f : bias_row[o], reinterpret_cast<float*>(y.RowBytes(i)) + o,
              y.stride / 4);
        }
      }
    });
  }

 private:
  ProductContext context_;
};

}  // namespace

std::unique_ptr<Products> MakePlainProducts(const ProductContext& context) {
  return std::make_unique<PlainProducts>(context);
}

}  // namespace coppice::cpu
