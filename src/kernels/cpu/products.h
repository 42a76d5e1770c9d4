// Large products with packed weights, which implement Backend::Pack and Backend::Product.
#pragma once

#include <memory>

#include "base/cpu_info.h"
#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {

// The rows of several weights, stacked.
class WeightRows {
 public:
  explicit WeightRows(std::span<const TensorView> parts) : parts_(parts) {
    for (const TensorView& part : parts) rows_ += part.rows;
  }
  std::span<const TensorView> parts() const { return parts_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return parts_.front().cols; }
  // Prefetches values [begin, begin + count) of rows [first, first + rows) into the L2 cache.
  void Prefetch(int64_t first, int64_t rows, int64_t begin, int64_t count) const;
  // Whether all rows have this type.
  bool AreAll(DType type) const;
  const std::byte* Row(int64_t i) const;
  // Dequantises values [begin, begin + count) of row i; `begin` and `count` must be multiples of the block
  // size.
  void Dequantize(const KernelTable& kernels, int64_t i, int64_t begin, int64_t count, float* y) const;
  // y[g * stride] = KernelTable::steps of group g of the same values; left alone where the type has none.
  void Steps(const KernelTable& kernels, int64_t i, int64_t begin, int64_t count, float* y,
             int64_t stride) const;

 private:
  std::span<const TensorView> parts_;
  int64_t rows_ = 0;
};

// One layout of packed weights and the products over it. Pack fills the contents of a PackedMatrix.
class Products {
 public:
  virtual ~Products() = default;
  virtual void Pack(const WeightRows& w, PackedMatrix& packed) = 0;
  // If ends() is true, this is Backend::ProductInto. Otherwise y [m, rows of all parts] receives all outputs,
  // neither added nor gated.
  virtual void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                       MutableTensorView y) = 0;
  // Whether Product handles `end` and gating.
  virtual bool ends() const { return false; }
};

// Shared by all products. The references must outlive them.
struct ProductContext {
  const KernelTable& kernels;
  const ThreadPool& pool;
};

// fp32, bf16 or integers over packed panels.
std::unique_ptr<Products> MakePanelProducts(const ProductContext& context, const PanelKernels& kernels);

// fp32 rows and the dot kernel, for CPUs without AVX2.
std::unique_ptr<Products> MakePlainProducts(const ProductContext& context);

}  // namespace coppice::cpu
