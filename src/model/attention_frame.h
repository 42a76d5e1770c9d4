// The input of one layer's attention, apart from its queries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/run_control.h"
#include "model/workspace.h"

namespace coppice {

struct AttentionFrame {
  AttentionShape shape;
  RopeTable rope;  // of the layer; empty with ALiBi
  // The attended keys and values: the layer's whole cache, or the part that a decode step chose.
  TensorView keys;
  TensorView values;
  std::vector<std::span<const int32_t>> key_positions;  // one list, or one per kv head
  std::vector<int32_t> query_positions;                 // where each row of the stream attends
  // Where a decode step attends some rows of `keys` in place: these. Empty: all.
  std::vector<int32_t> rows;

  int64_t attended() const { return rows.empty() ? keys.rows : std::ssize(rows); }

  bool ragged() const { return key_positions.size() > 1; }
  std::span<const int32_t> KeyPositions(int kv_head) const {
    return key_positions[ragged() ? static_cast<size_t>(kv_head) : 0];
  }
  // `queries`: those of the stream's rows from `first_row` on.
  AttentionInput Input(const TensorView& queries, int64_t first_row) const;
};

// The part of `in` for the `count` kv heads from `kv_head` on and for the query heads that share them.
AttentionInput HeadInput(const AttentionInput& in, int kv_head, std::span<const int32_t> key_positions,
                         int count = 1);

// Computes dense attention for the queries of one tile. Large tiles are computed a few heads at a time, with
// control.Pause() in between.
void Attend(const AttentionFrame& frame, const AttentionInput& in, ProductKind kind, MutableTensorView out,
            const RunControl& control, Backend& be);

// One sequence's rows in a decode step of several sequences.
struct OwnAttention {
  AttentionFrame frame;
  TensorView queries;  // of all its rows
};

// Attends for the decode steps of several sequences together. out: the rows of all, in order.
void AttendTogether(std::span<const OwnAttention> parts, MutableTensorView out, Backend& be);

}  // namespace coppice
