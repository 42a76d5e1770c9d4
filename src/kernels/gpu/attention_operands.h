// What every attention kernel takes, on the device.
#pragma once

#include <string>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/gpu/operands.h"

namespace coppice::gpu {

// Throws Error if the heads are too wide for the kernels.
void CheckHeads(int64_t head_dim);

struct AttentionOperands {
  // Keys and values that are not bf16 are converted to it. Throws Error if the heads are too wide.
  AttentionOperands(Gpu& gpu, Operands& op, const AttentionInput& in, bool with_values,
                    bool positions = true);

  // The variant of `kernel` that these operands allow: "_d64", "_d128" or "_any", after "_alibi" if there are
  // slopes and the kernel has such a variant (`alibi`).
  std::string Variant(std::string_view kernel, bool alibi) const;

  Operands::Place q, k, v;
  CUdeviceptr query_positions = 0;
  CUdeviceptr key_positions = 0;
  CUdeviceptr slopes = 0;  // [heads], zeros without ALiBi
  int64_t m = 0;
  int64_t n = 0;
  int64_t heads = 0;
  int64_t group = 0;
  int64_t head_dim = 0;
  int64_t window = 0;
  float scale = 1;
  bool alibi = false;
  bool aligned = true;  // pointers and strides, as the variants of one size need
};

// Whether an output may be written by these variants.
bool IsAligned(const Operands::Place& place, int64_t element_bytes);

}  // namespace coppice::gpu
