// From the queries and keys of one layer to the scores that a policy asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kv/key_summary.h"
#include "model/workspace.h"
#include "policies/policy.h"

namespace coppice {

// The keys and values that a layer attends: its whole cache, or the part that a decode step chose.
struct AttendedKeys {
  TensorView keys;
  TensorView values;
  std::vector<std::span<const int32_t>> positions;  // one list, or one per kv head

  bool ragged() const { return positions.size() > 1; }
};

// `count` kv heads from `kv_head` on and the query heads that read them, as a layer of its own.
AttentionInput HeadInput(const AttentionInput& in, int kv_head, std::span<const int32_t> key_positions,
                         int count = 1);

// Collects queries as tiles compute them, and turns them into scores at the end. What depends on a sum over
// rows is summed in groups of fixed rows, so that the size of the tiles changes nothing.
class Observer {
 public:
  // `query_positions`: of all rows of the stream, as they attend. `rope`: what the queries were rotated with, or empty.
  // `units`: null, or what scores blocks in decode; it sees the queries too. In decode the last row alone is looked at.
  Observer(Phase phase, const Needs& needs, const AttentionShape& shape, const AttendedKeys& keys,
           std::span<const int32_t> query_positions, const RopeTable& rope, Workspace& ws, UnitKeys* units);

  // Rows before this one are not looked at.
  int64_t first_row() const { return first_row_; }
  // Tiles in order; those before first_row may be left out. q [tile.count, heads * head_dim] fp32.
  void Add(const Tile& tile, const TensorView& q, Backend& be);
  // Fills what was asked for. In decode unit scores come from `units`.
  void Finish(Observation& seen, Backend& be);

 private:
  void FindQuestion();
  void MoveQuestionToTheEnd(Backend& be);
  void AddToSum(const Tile& tile, const TensorView& q, Backend& be);
  void FlushSum(Backend& be);
  void Mass(const AttentionInput& in, const Needs::Mass& mass, MutableTensorView lists, Backend& be) const;
  AttentionInput Last(int64_t queries) const;
  AttentionInput QueriesOf(const Needs::Mass& mass) const;

  const Needs& needs_;
  const AttentionShape& shape_;
  const AttendedKeys& keys_;
  std::span<const int32_t> query_positions_;
  const RopeTable& rope_;
  Workspace& ws_;
  UnitKeys* units_;
  int64_t rows_;
  int64_t tail_ = 0;  // rows of ws.tail_q: the last ones
  int64_t first_row_ = 0;
  std::vector<int32_t> question_rows_;       // of the stream, ascending: their queries are in ws.question_q
  std::vector<int32_t> question_positions_;  // where they are asked: moved to the prompt's end
  bool sums_[2] = {};                        // column sums over all queries: over all heads, per kv head
  Tensor column_sums_[2];                    // [1, keys], [kv_heads, keys]
  Tensor part_;                              // one group's share of a column sum
  int64_t pending_ = 0;                      // rows in ws.sum_q
  int64_t summed_ = 0;                       // rows that are in the sums
};

}  // namespace coppice
