// What every layer uses during one pass of a sequence through the model.
#pragma once

#include "kernels/backend.h"
#include "model/run_control.h"
#include "model/sequence.h"
#include "model/split.h"
#include "model/workspace.h"
#include "policies/policy.h"

namespace coppice {

// The referenced objects must outlive the Pass. One Pass may serve a prefill and the decode steps that
// follow.
struct Pass {
  TokenPolicy& policy;
  SequenceState& sequence;
  Workspace& workspace;
  Backend& backend;
  RunControl control = {};
  Split* split = nullptr;  // prefill: the other processes that compute rows of it; null: there are none

  // Whether this process computes the last row, and decodes.
  bool leads() const { return split == nullptr || split->leads(); }
};

}  // namespace coppice
