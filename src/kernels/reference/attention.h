// Attention of the reference backend: the softmax of one query and head at a time.
#pragma once

#include "kernels/backend.h"

namespace coppice::reference {

void Attention(const AttentionInput& in, MutableTensorView out);
void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                   MutableTensorView mass);
void AttentionWeights(const AttentionInput& in, MutableTensorView weights);
void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                     MutableTensorView out);
void UnitScores(const AttentionInput& in, int unit, KeyPool pool, MutableTensorView unit_scores);

}  // namespace coppice::reference
