// Computes the scores that a policy asked for from one layer's queries and keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "kernels/backend.h"
#include "kv/key_summary.h"
#include "model/attention_frame.h"
#include "model/pass.h"
#include "policies/policy.h"

namespace coppice {

// Collects queries while tiles compute them, and turns them into scores at the end. Sums over rows are taken
// in groups of a fixed number of rows, so that they do not depend on the size of the tiles.
class Observer {
 public:
  // In decode only the last row is observed. `units` (may be null) scores blocks of keys in decode; its last
  // queries reach back into the prompt, so it gets the queries of the prefill too. The references must
  // outlive the observer.
  Observer(Phase phase, const Needs& needs, const AttentionFrame& frame, UnitKeys* units, const Pass& pass);

  // Rows before this one are not observed.
  int64_t first_row() const { return first_row_; }
  // Tiles come in order; those before first_row may be left out. q [tile.count, heads * head_dim] fp32.
  void Add(const Tile& tile, const TensorView& q);
  // Prefill by several processes, which added the tiles that they computed: every process gets all queries.
  void Share(const Deal& deal, Comm& comm);
  // Fills in what the policy asked for. In decode unit scores come from `units`.
  void Finish(Observation& seen);

 private:
  void FindQuestion();
  void MoveQuestionToTheEnd();
  void AddToSum(const Tile& tile, const TensorView& q);
  void FlushSum();
  void Mass(const AttentionInput& in, const Needs::Mass& mass, MutableTensorView lists) const;
  AttentionInput Last(int64_t queries) const;
  AttentionInput QueriesOf(const Needs::Mass& mass) const;

  const Needs& needs_;
  const AttentionFrame& frame_;
  UnitKeys* units_;
  const Pass& pass_;
  Workspace& ws_;
  Backend& be_;
  int64_t rows_;
  int64_t tail_ = 0;  // number of last rows whose queries are in ws.tail_q
  int64_t first_row_ = 0;
  std::vector<int32_t> question_rows_;       // of the stream, ascending: their queries are in ws.question_q
  std::vector<int32_t> question_positions_;  // of these rows, moved to the prompt's end
  bool sums_[2] = {};                        // column sums over all queries: over all heads, per kv head
  Tensor column_sums_[2];                    // [1, keys], [kv_heads, keys]
  Tensor part_;                              // one group's share of a column sum
  int64_t pending_ = 0;                      // rows in ws.sum_q
  int64_t summed_ = 0;                       // rows already in the sums
};

}  // namespace coppice
