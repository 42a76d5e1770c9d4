// The shapes and types that each operation of kernels/backend.h asks for, checked once where an operation
// begins: a mismatch is a CheckFailure. Shared by the backends; costs nothing beside the operation.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "tensor/view.h"

namespace coppice {

// Weights that are packed together: the same number of inputs.
void CheckParts(std::span<const TensorView> parts);
void CheckProduct(const TensorView& x, const PackedMatrix& w, const TensorView& bias, const TensorView& y);
// y [m, outputs] = x [m, inputs] w^T + bias [1, outputs], or no bias.
void CheckProduct(const TensorView& x, int64_t outputs, int64_t inputs, const TensorView& bias,
                  const TensorView& y);
void CheckEmbed(const TensorView& table, std::span<const int32_t> ids, const TensorView& y);
// One [1, d] parameter of a norm over x and y [m, d].
void CheckNorm(const TensorView& x, const TensorView& parameter, const TensorView& y);
void CheckRope(const TensorView& x, int head_dim, std::span<const int32_t> positions, const RopeTable& table);
void CheckSameShape(const TensorView& x, const TensorView& y);  // both fp32
void CheckGatherRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y);
void CheckScatterAddRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y);
void CheckConvert(const TensorView& x, const TensorView& y);
// Heads, queries, keys, values. Positions only where `positions`: UnitScores does not read them.
void CheckAttentionInput(const AttentionInput& in, bool positions = true);
void CheckAttention(const AttentionInput& in, const TensorView& out);
// Weights are above 0 and finite: a row's softmax sum is divided by its weight.
void CheckAttentionMass(const AttentionInput& in, std::span<const float> query_weights,
                        const TensorView& mass);
void CheckAttentionWeights(const AttentionInput& in, const TensorView& weights);
// Also that the pattern has a head for every query head, key blocks for the rows of the call, and lists that
// ascend from 0 or more. Only what the call reads is looked at.
void CheckSparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                          const TensorView& out);
void CheckUnitScores(const AttentionInput& in, int unit, const TensorView& unit_scores);

}  // namespace coppice
