// The row-wise operations of the reference backend; kernels/backend.h specifies each.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace coppice::reference {

void Embed(const TensorView& table, std::span<const int32_t> ids, float scale, MutableTensorView y);
void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y);
void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
               MutableTensorView y);
void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions, const RopeTable& table);
void GateMul(MutableTensorView gate, const TensorView& up, Activation activation);
void Gelu(MutableTensorView x);
void Add(const TensorView& x, MutableTensorView y);
void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y);
// y += scale * x
void AddScaled(std::span<const float> x, float scale, std::span<float> y);
void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y);
void Convert(const TensorView& x, MutableTensorView y);
void MeanRows(const TensorView& x, int64_t block, MutableTensorView means);

}  // namespace coppice::reference
