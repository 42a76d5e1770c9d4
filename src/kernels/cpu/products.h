// Large products with packed weights: what Backend::Pack and Backend::Product are made of.
#pragma once

#include <memory>

#include "base/cpu_info.h"
#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {

class Products {
 public:
  virtual ~Products() = default;
  virtual void Pack(const TensorView& w, PackedMatrix& packed) = 0;
  virtual void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias,
                       MutableTensorView y) = 0;
};

// Where products are made: all references outlive the object.
struct ProductContext {
  const KernelTable& kernels;
  const ThreadPool& pool;
  Isa isa;
  bool exact;  // fp32 even where bf16 is faster
};

// Keeps oneDNN within `isa`. It is the process's setting and is heard only before the first product.
void LimitOnednn(Isa isa);

// oneDNN, one thread per primitive and many primitives at a time. From AVX2 up.
std::unique_ptr<Products> MakeOnednnProducts(const ProductContext& context);

// fp32 rows and the dot kernel: for CPUs below AVX2, where oneDNN has little to add.
std::unique_ptr<Products> MakePlainProducts(const ProductContext& context);

}  // namespace coppice::cpu
