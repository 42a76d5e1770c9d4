// The quantised blocks of GGUF files: their layout, and exact scalar conversion. Layouts as ggml defines them
// (ggml-common.h); the arithmetic here is the oracle for every faster kernel.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace coppice {

// Any stored type to fp32; y.size() values, whole blocks.
void DequantizeRow(DType type, const std::byte* blocks, std::span<float> y);

// fp32 to F32, F16, BF16, Q8_0 or Q4_0 (round to nearest, ggml's reference rounding): what `coppice synth`
// writes. Throws Error for another type.
void QuantizeRow(DType type, std::span<const float> x, std::byte* blocks);

}  // namespace coppice
