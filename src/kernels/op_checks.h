// Checks of the shapes and types that the operations of kernels/backend.h require, shared by all backends.
// Each operation calls its check once at the start; a mismatch throws CheckFailure. The cost is negligible.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "tensor/view.h"

namespace coppice {

// Weights that are packed together must have the same number of inputs.
void CheckParts(std::span<const TensorView> parts);
void CheckProduct(const TensorView& x, const PackedMatrix& w, const TensorView& bias, const TensorView& y);
// y [m, outputs] = x [m, inputs] w^T + bias [1, outputs]; `bias` may be empty.
void CheckProduct(const TensorView& x, int64_t outputs, int64_t inputs, const TensorView& bias,
                  const TensorView& y);
void CheckEmbed(const TensorView& table, std::span<const int32_t> ids, const TensorView& y);
// The weight [1, c] of an RMS norm, over x and y [m, d]; c divides d.
void CheckRmsNorm(const TensorView& x, const TensorView& weight, const TensorView& y);
// One parameter [1, d] of a norm, over x and y [m, d].
void CheckNorm(const TensorView& x, const TensorView& parameter, const TensorView& y);
void CheckRope(const TensorView& x, int head_dim, std::span<const int32_t> positions, const RopeTable& table);
void CheckSameShape(const TensorView& x, const TensorView& y);  // both must be fp32
void CheckGatherRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y);
void CheckScatterAddRows(const TensorView& x, std::span<const int32_t> rows, const TensorView& y);
// Only in host memory.
void CheckAddScaledRows(const TensorView& x, std::span<const int32_t> rows, std::span<const float> scales,
                        const TensorView& y);
void CheckConvert(const TensorView& x, const TensorView& y);
// Both only in host memory.
void CheckRecur(const RecurrenceShape& shape, const RecurrenceWeights& weights, const RecurrenceRows& rows);
void CheckConvolve(const TensorView& x, const TensorView& before, const Convolution& by, const TensorView& y);
void CheckMeanRows(const TensorView& x, int64_t block, const TensorView& means);
// Heads, queries and keys; positions only if `positions` is set, since UnitScores does not read them.
void CheckAttentionInput(const AttentionInput& in, bool positions = true);
void CheckAttention(const AttentionInput& in, const TensorView& out);
void CheckAscendingRows(std::span<const int32_t> rows, int64_t most);
// query_weights must be finite and above 0, because a row's softmax sum is divided by its weight.
void CheckAttentionMass(const AttentionInput& in, std::span<const float> query_weights,
                        const TensorView& mass);
void CheckAttentionWeights(const AttentionInput& in, const TensorView& weights);
// Also checks that the pattern has a head for every query head, key blocks for the rows of the call, and
// lists that ascend from 0 or more. It checks only lists that the call reads.
void CheckSparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                          const TensorView& out);
void CheckUnitScores(const AttentionInput& in, int unit, const TensorView& unit_scores);

}  // namespace coppice
