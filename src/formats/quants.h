// Exact scalar conversion of the quantised blocks of GGUF files, whose layouts are those of ggml
// (ggml-common.h). This arithmetic is the oracle for every faster kernel.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace coppice {

// Converts any stored type to fp32. y.size() must be a multiple of the block size.
void DequantizeRow(DType type, const std::byte* blocks, std::span<float> y);

// Converts fp32 to F32, F16, BF16, Q8_0, Q4_0 or MXFP4 (ggml's reference rounding); `coppice synth` writes
// these. Throws Error for any other type.
void QuantizeRow(DType type, std::span<const float> x, std::byte* blocks);

}  // namespace coppice
