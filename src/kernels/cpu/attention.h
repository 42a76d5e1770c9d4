// Attention over tiles of rows and chunks of keys, spread over threads. SparseAttention is in
// sparse_attention.cpp.
#pragma once

#include <span>

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

// The kernels for keys and values of this type.
const AttentionKernels& KernelsFor(const KernelTable& kernels, DType cache);

// Owns the scratch of the threads; it grows to the largest call and is then reused.
class AttentionOps {
 public:
  AttentionOps(const KernelTable& kernels, const ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void Attention(const AttentionInput& in, MutableTensorView out);
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MutableTensorView mass);
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights);
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out);
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

 private:
  static void Grow(Tensor& scratch, int64_t rows, int64_t floats);
  void ScoreKeys(const AttentionInput& in, int64_t head, int64_t first, std::span<const float> keys,
                 MutableTensorView weights) const;
  void WeighScores(const AttentionInput& in, int64_t query, int64_t head, std::span<float> scores) const;

  const KernelTable& kernels_;
  const ThreadPool& pool_;
  Tensor scratch_;  // [threads, floats]
  Tensor states_;   // [tiles * chunks, floats]
  Tensor copies_;   // [threads, bytes / 4] keys and values that a sparse pattern picks
};

}  // namespace coppice::cpu
