// What one layer's attention works on, apart from its queries.
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
  // The attended keys and values: the layer's whole cache, or the part that a decode step chose.
  TensorView keys;
  TensorView values;
  std::vector<std::span<const int32_t>> key_positions;  // one list, or one per kv head
  std::vector<int32_t> query_positions;                 // of all rows of the stream, as they attend

  bool ragged() const { return key_positions.size() > 1; }
  std::span<const int32_t> KeyPositions(int kv_head) const {
    return key_positions[ragged() ? static_cast<size_t>(kv_head) : 0];
  }
  // `queries` belong to the rows of the stream from `first_row` on.
  AttentionInput Input(const TensorView& queries, int64_t first_row) const;
};

// `count` kv heads from `kv_head` on, and the query heads that read them, as a layer of its own.
AttentionInput HeadInput(const AttentionInput& in, int kv_head, std::span<const int32_t> key_positions,
                         int count = 1);

// Dense attention of the queries of one tile, some heads at a time, so that other sequences get a turn in
// between.
void Attend(const AttentionFrame& frame, const AttentionInput& in, ProductKind kind, MutableTensorView out,
            const RunControl& control, Backend& be);

}  // namespace coppice
