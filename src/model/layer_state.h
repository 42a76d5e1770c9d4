// The state of one sequence in one layer.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/key_summary.h"
#include "kv/layer_cache.h"
#include "model/ledger.h"
#include "model/recurrent_state.h"
#include "tensor/tensor.h"

namespace coppice {

// The keys of the first tokens as first written, for a method that moves these tokens (StreamingLLM).
struct SinkKeys {
  Tensor keys;                     // [rows, kv_heads * head_dim] in the cache's type
  std::vector<int32_t> positions;  // their original positions
};

struct LayerState {
  explicit LayerState(LayerCache empty) : cache(std::move(empty)) {}

  LayerCache cache;
  std::unique_ptr<UnitKeys> units;    // null if the policy scores no units in decode
  std::unique_ptr<PageBounds> pages;  // null if the policy asks for no pages
  SinkKeys sinks;
  RecurrentState recurrent;  // empty where the layer attends
  StepCounts step;           // of the current decode step
};

}  // namespace coppice
