// Attention over tiles of rows and chunks of keys, spread over threads.
#pragma once

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

// Owns the scratch of the threads; it grows to the largest call and is then reused.
class AttentionOps {
 public:
  AttentionOps(const KernelTable& kernels, const ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void Attention(const AttentionInput& in, MutableTensorView out);
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MutableTensorView mass);
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

 private:
  const KernelTable& kernels_;
  const ThreadPool& pool_;
  Tensor scratch_;  // [threads, floats]
  Tensor states_;   // [tiles * chunks, floats]
};

}  // namespace coppice::cpu
