// Attention over tiles of rows and chunks of keys, run by a thread pool. SparseAttention is in
// sparse_attention.cpp, DecodeAttention in decode_attention.cpp.
#pragma once

#include <span>
#include <utility>

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

// The rows [first, second) of the keys that a query at `position` sees.
std::pair<int64_t, int64_t> VisibleRows(const AttentionInput& in, int32_t position);

// Adds the tile's sinks to the sums of a state that all keys have entered.
void AddSinks(const AttentionTile& tile, const AttentionKernels& kernels, float* state);

// Whether keys and values of this type use the kernels with bf16 factors.
bool HasBf16Kernels(DType cache);
// The kernels of attention over a cache of this type.
const AttentionKernels& KernelsFor(const KernelTable& kernels, const AttentionShape& shape, DType cache);
// Whether the shape permits rounding values to codes, and these kernels have some.
bool Int8Values(const AttentionShape& shape, const AttentionKernels& kernels);
// The bits of keys and queries as codes, or 0 if the shape does not permit them or these kernels have none;
// implies Int8Values.
int KeyBits(const AttentionShape& shape, const AttentionKernels& kernels);
// Whether packed tiles hold the keys as well as the values.
bool PacksKeys(const AttentionShape& shape, const AttentionKernels& kernels);
// Returns true if packing K and V pays off: at least two row tiles share them, or values become codes (these
// kernels read packed codes only).
bool PackingPays(const AttentionShape& shape, const AttentionKernels& kernels, int64_t row_tiles);

class DecodeRun;  // decode_attention.cpp

// Owns the threads' scratch memory, which grows to the largest call and is then reused.
class AttentionOps {
 public:
  AttentionOps(const KernelTable& kernels, const ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void Attention(const AttentionInput& in, MutableTensorView out);
  void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                     MutableTensorView mass);
  void AttentionWeights(const AttentionInput& in, MutableTensorView weights);
  void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                       MutableTensorView out);
  // A pattern goes with one input only.
  void DecodeAttention(std::span<const AttentionInput> inputs, const SparsePattern& pattern,
                       MutableTensorView out);
  void DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows, MutableTensorView out);
  void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

 private:
  void Compute(const DecodeRun& run, DType cache, int64_t head_dim);
  static void Grow(Tensor& scratch, int64_t rows, int64_t floats);
  // The call's cache, or an empty one owned by this object.
  PackedCache& PackedOf(const AttentionInput& in);
  void ScoreKeys(const AttentionInput& in, int64_t head, int64_t first, std::span<const float> keys,
                 MutableTensorView weights) const;
  void WeighScores(const AttentionInput& in, int64_t query, int64_t head, std::span<float> scores) const;

  const KernelTable& kernels_;
  const ThreadPool& pool_;
  Tensor scratch_;        // [threads, floats]
  Tensor states_;         // [tiles * chunks, floats]
  Tensor decode_states_;  // [1, heads * pieces * floats]
  Tensor copies_;         // [threads, bytes / 4]; keys and values gathered for a sparse pattern
  PackedCache packed_;    // for calls without a cache
};

}  // namespace coppice::cpu
