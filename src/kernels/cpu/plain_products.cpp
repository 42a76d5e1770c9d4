#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kColumnsPerTask = 16;
constexpr int64_t kRowsPerTask = 64;  // rows of x that stay in the cache while a task's columns pass

class PlainProducts final : public Products {
 public:
  explicit PlainProducts(const ProductContext& context) : context_(context) {}

  void Pack(const WeightRows& w, PackedMatrix& packed) override {
    packed.storage.Resize(DType::kF32, w.rows(), w.cols());
    MutableTensorView rows = packed.storage.mutable_view();
    context_.pool.For(w.rows(), kColumnsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        w.Dequantize(context_.kernels, i, 0, w.cols(), rows.Row<float>(i).data());
      }
    });
  }

  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd,
               MutableTensorView y) override {
    const TensorView rows = w.storage.view();
    COPPICE_CHECK(rows.dtype == DType::kF32 && rows.cols == w.inputs && rows.rows == y.cols);
    if (x.rows == 0 || y.cols == 0) return;
    const float* bias_row = bias.empty() ? nullptr : bias.Row<float>(0).data();
    const auto dot = context_.kernels.dot[static_cast<size_t>(DType::kF32)];
    context_.pool.For(rows.rows, kColumnsPerTask, [&](int64_t begin, int64_t end, int) {
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

void WeightRows::Prefetch(int64_t first, int64_t rows, int64_t begin, int64_t count) const {
  constexpr int64_t kCacheLine = 64;
  for (const TensorView& part : parts_) {
    const int64_t offset = BytesOf(part.dtype, begin);
    const int64_t bytes = BytesOf(part.dtype, count);
    for (int64_t i = std::max<int64_t>(first, 0); i < std::min(first + rows, part.rows); ++i) {
      const std::byte* values = part.RowBytes(i) + offset;
      for (int64_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(values + at, 0, 2);
    }
    first -= part.rows;
  }
}

bool WeightRows::AreAll(DType type) const {
  return std::ranges::all_of(parts_, [type](const TensorView& part) { return part.dtype == type; });
}

const std::byte* WeightRows::Row(int64_t i) const {
  for (const TensorView& part : parts_) {
    if (i < part.rows) return part.RowBytes(i);
    i -= part.rows;
  }
  return nullptr;
}

void WeightRows::Dequantize(const KernelTable& kernels, int64_t i, int64_t begin, int64_t count,
                            float* y) const {
  for (const TensorView& part : parts_) {
    if (i < part.rows) {
      kernels.dequantize[static_cast<size_t>(part.dtype)](part.RowBytes(i) + BytesOf(part.dtype, begin),
                                                          count, y);
      return;
    }
    i -= part.rows;
  }
}

void WeightRows::Steps(const KernelTable& kernels, int64_t i, int64_t begin, int64_t count, float* y,
                       int64_t stride) const {
  for (const TensorView& part : parts_) {
    if (i < part.rows) {
      const auto steps = kernels.steps[static_cast<size_t>(part.dtype)];
      if (steps != nullptr) steps(part.RowBytes(i) + BytesOf(part.dtype, begin), count, y, stride);
      return;
    }
    i -= part.rows;
  }
}

std::unique_ptr<Products> MakePlainProducts(const ProductContext& context) {
  return std::make_unique<PlainProducts>(context);
}

}  // namespace coppice::cpu
