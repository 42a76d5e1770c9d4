// Large products with packed weights: what Backend::Pack and Backend::Product are made of.
#pragma once

#include <memory>

#include "base/cpu_info.h"
#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels.h"

namespace coppice::cpu {

// Rows of several weights, one part after the other.
class WeightRows {
 public:
  explicit WeightRows(std::span<const TensorView> parts) : parts_(parts) {
    for (const TensorView& part : parts) rows_ += part.rows;
  }
  std::span<const TensorView> parts() const { return parts_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return parts_.front().cols; }
  // Asks for values [begin, begin + count) of rows [first, first + rows) to be brought into the L2 cache.
  void Prefetch(int64_t first, int64_t rows, int64_t begin, int64_t count) const;
  // Values [begin, begin + count) of row i, which begin on a block's boundary.
  void Dequantize(const KernelTable& kernels, int64_t i, int64_t begin, int64_t count, float* y) const;

 private:
  std::span<const TensorView> parts_;
  int64_t rows_ = 0;
};

// One layout of packed weights and the products over it. Fills `storage` and `scales` of a PackedMatrix.
class Products {
 public:
  virtual ~Products() = default;
  virtual void Pack(const WeightRows& w, PackedMatrix& packed) = 0;
  // y is [m, rows of all parts]; with ends() it is what Backend::ProductInto says.
  virtual void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                       MutableTensorView y) = 0;
  // Whether Product knows what to do at the end: to add, and to gate. If not, it stores all outputs.
  virtual bool ends() const { return false; }
};

// Where products are made: all references outlive the object.
struct ProductContext {
  const KernelTable& kernels;
  const ThreadPool& pool;
};

// Keeps oneDNN within `isa`. It is the process's setting and is heard only before the first product.
void LimitOnednn(Isa isa);

// fp32 through oneDNN, one thread per primitive and many primitives at a time. From AVX-512 up.
std::unique_ptr<Products> MakeOnednnProducts(const ProductContext& context);

// fp32, bf16 or integers, over packed panels.
std::unique_ptr<Products> MakePanelProducts(const ProductContext& context, const PanelKernels& kernels);

// fp32 rows and the dot kernel: for CPUs below AVX2, where oneDNN has little to add.
std::unique_ptr<Products> MakePlainProducts(const ProductContext& context);

}  // namespace coppice::cpu
