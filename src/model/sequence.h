// Everything that one sequence owns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/aux_cache.h"
#include "kv/cold_cache.h"
#include "kv/key_summary.h"
#include "kv/layer_cache.h"
#include "model/ledger.h"
#include "model/prefix.h"
#include "model/rope.h"
#include "tensor/tensor.h"
#include "trace/trace.h"

namespace coppice {

// Keys of the first tokens as they were written, for a method that moves them up against later ones.
struct SinkKeys {
  Tensor keys;                     // [rows, kv_heads * head_dim] in the cache's type
  std::vector<int32_t> positions;  // where they stood
};

struct SequenceState {
  std::vector<LayerCache> cache;  // [layers]
  // depth[p]: how many layers hold the key and value of position p, hot or cold; layers where it was never
  // dropped, 0 where it never entered. Eviction does not change it.
  std::vector<int32_t> depth;
  AuxCache aux{DType::kF32, 0};
  std::unique_ptr<ColdCache> cold;                   // null until something is offloaded
  std::vector<std::unique_ptr<UnitKeys>> unit_keys;  // [layers], null where no policy scores units
  std::vector<std::unique_ptr<PageBounds>> pages;    // [layers], null where no policy looks at pages
  std::vector<SinkKeys> sinks;                       // [layers]
  std::vector<StepCounts> step;                      // [layers], of the decode step at hand
  RopeTables rope;
  Ledger ledger;
  ColdOptions cold_options;
  TraceRecorder* trace = nullptr;  // may be null
  // What the prompt takes over from an earlier one (the caller has held it against RulesOf), and what collects what it
  // leaves; the latter may be null.
  PrefixUse prefix;
  PrefixCapture* capture = nullptr;
  int64_t prompt_tokens = 0;   // positions that the prompt takes
  int64_t entered = 0;         // prompt tokens that entered the model
  std::vector<int32_t> input;  // [entered] which of the prompt's tokens they are
  int64_t capacity = 0;        // positions the sequence may grow to

  int64_t kv_bytes() const {
    int64_t bytes = 0;
    for (const LayerCache& layer : cache) bytes += layer.bytes();
    return bytes;
  }
  int64_t cold_bytes() const { return cold ? cold->bytes() : 0; }
};

}  // namespace coppice
