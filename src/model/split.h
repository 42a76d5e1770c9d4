// A prefill whose rows several processes compute (comm/deal.h). Every process runs the same layers and asks
// the same questions, so every process must get the same answers and stop at the same place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/comm.h"
#include "kernels/sparse_pattern.h"
#include "model/ledger.h"
#include "model/run_control.h"
#include "policies/policy.h"
#include "tensor/token_set.h"

namespace coppice {

class Split {
 public:
  // Two processes at least. `outer`: how process 0's caller watches the run; the other processes' is empty.
  // Of it, `progress` and `cancelled` are used. `pause` is not: while one process waited in it, the others
  // would wait for its rows.
  Split(Comm& comm, RunControl outer) : comm_(comm), outer_(std::move(outer)) {
    COPPICE_CHECK(comm.size() > 1);
  }

  Comm& comm() const { return comm_; }
  bool leads() const { return comm_.leads(); }
  // For the pass. A process that left a layer on its own would keep the others waiting. So this neither
  // pauses nor throws, and a run that was cancelled ends where the processes next agree.
  RunControl control() const;

  // Compares a policy's answer over all processes. Throws Error in all of them if it differs, and Cancelled
  // in all if process 0's caller cancelled the run. `question` names the answer in the message.
  void Agree(const TokenSet& answer, std::string_view question, int layer);
  void Agree(std::span<const TokenSet> answers, std::string_view question, int layer);
  void Agree(const SparsePattern& pattern, int layer);

  // This process sends its rows of `rows` [deal.rows(), any width] to the others and gets theirs.
  void Share(const Deal& deal, MutableTensorView rows);

  ComputedRows computed;

 private:
  void AgreeOn(uint64_t hash, std::string_view question, int layer);

  Comm& comm_;
  RunControl outer_;
};

// Why this policy's prefill cannot be split, or "".
std::string SplitRefusal(const TokenPolicy& policy, int layers);

}  // namespace coppice
