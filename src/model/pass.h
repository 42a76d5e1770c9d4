// One pass of a sequence through the model: what every layer of it works with.
#pragma once

#include "kernels/backend.h"
#include "model/run_control.h"
#include "model/sequence.h"
#include "model/workspace.h"
#include "policies/policy.h"

namespace coppice {

// Everything it refers to must outlive it. The same Pass may serve a prefill and the decode steps that
// follow.
struct Pass {
  TokenPolicy& policy;
  SequenceState& sequence;
  Workspace& workspace;
  Backend& backend;
  RunControl control = {};
};

}  // namespace coppice
