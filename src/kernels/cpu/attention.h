// Attention over tiles of rows and chunks of keys, spread over threads. SparseAttention is in
// sparse_attention.cpp, DecodeAttention in decode_attention.cpp.
#pragma once

#include <span>
#include <utility>

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

// Rows [first, second) of the keys are those that a query at `position` sees.
std::pair<int64_t, int64_t> VisibleRows(const AttentionInput& in, int32_t position);

// Whether keys and values of this type take the kernels with bf16 factors.
bool HasBf16Kernels(DType cache);
const AttentionKernels& KernelsFor(const KernelTable& kernels, DType cache);
// Whether these kernels take the shape's permission to round values.
bool Int8Values(const AttentionShape& shape, const AttentionKernels& kernels);
// Whether keys that so many tiles of rows read are packed for them: from two on, and always where values are rounded,
// which these kernels only read packed.
bool PackingPays(const AttentionShape& shape, const AttentionKernels& kernels, int64_t row_tiles);

// Owns the scratch of the threads; it grows to the largest call and is then reused.
class AttentionOps {
 public:
  AttentionOps(const KernelTable& kernels, const ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void Attention(const AttentionInput& in, MutableTensorView out);
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass);
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights);
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out);
  void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern, MutableTensorView out);
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

 private:
  static void Grow(Tensor& scratch, int64_t rows, int64_t floats);
  // The call's, or one of its own that is empty.
  PackedCache& PackedOf(const AttentionInput& in);
  void ScoreKeys(const AttentionInput& in, int64_t head, int64_t first, std::span<const float> keys,
                 MutableTensorView weights) const;
  void WeighScores(const AttentionInput& in, int64_t query, int64_t head, std::span<float> scores) const;

  const KernelTable& kernels_;
  const ThreadPool& pool_;
  Tensor scratch_;        // [threads, floats]
  Tensor states_;         // [tiles * chunks, floats]
  Tensor decode_states_;  // [1, heads * pieces * floats]
  Tensor copies_;         // [threads, bytes / 4] keys and values that a sparse pattern picks
  PackedCache packed_;    // of calls that bring none
};

}  // namespace coppice::cpu
