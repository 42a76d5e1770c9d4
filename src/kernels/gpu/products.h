// Products by weights, and rows of a weight.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/gpu/gpu.h"

namespace coppice::gpu {

// As in kernels/backend.h. The operands have been checked. A weight may be placed (Gpu::Place), which costs
// nothing here, or in host or device memory, which is packed first.
void PackParts(Gpu& gpu, std::span<const TensorView> parts, PackedMatrix& packed);
void PackGated(Gpu& gpu, const TensorView& gate, const TensorView& up, PackedMatrix& packed);
void Product(Gpu& gpu, const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
             MutableTensorView y);
void DecodeProduct(Gpu& gpu, const TensorView& x, const TensorView& w, const TensorView& bias,
                   MutableTensorView y);
void Embed(Gpu& gpu, const TensorView& table, std::span<const int32_t> ids, MutableTensorView y);

}  // namespace coppice::gpu
