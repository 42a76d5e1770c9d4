// The attention operations of the backend: what kernels/README.md asks of the host for each kernel.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/gpu/gpu.h"

namespace coppice::gpu {

// As in kernels/backend.h. The input has been checked.
void Attention(Gpu& gpu, const AttentionInput& in, MutableTensorView out);
void AttentionMass(Gpu& gpu, const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                   MutableTensorView mass);
void AttentionWeights(Gpu& gpu, const AttentionInput& in, MutableTensorView weights);
void SparseAttention(Gpu& gpu, const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                     MutableTensorView out);
void DecodeAttention(Gpu& gpu, const AttentionInput& in, const SparsePattern& pattern, MutableTensorView out);
void UnitScores(Gpu& gpu, const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

}  // namespace coppice::gpu
