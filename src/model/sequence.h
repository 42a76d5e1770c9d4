// Everything that one sequence owns.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/aux_cache.h"
#include "kv/cold_cache.h"
#include "kv/cold_store.h"
#include "model/config.h"
#include "model/layer_state.h"
#include "model/ledger.h"
#include "model/prefix.h"
#include "model/rope.h"
#include "trace/trace.h"

namespace coppice {

struct SequenceState {
  SequenceState() = default;
  // Empty, for a prompt of `prompt_tokens` and at most `capacity` positions in all. `rope_factors`: of the
  // model's file, or empty. Throws Error if the heads do not fill the blocks of `cache_type`.
  // Keys, values and RoPE's tables are in host memory, or in `memory`.
  SequenceState(const ModelConfig& config, std::span<const float> rope_factors, DType cache_type,
                int64_t prompt_tokens, int64_t capacity, DeviceMemory* memory = nullptr);

  LayerState& layer(int l) { return layers[static_cast<size_t>(l)]; }

  // Records which of the prompt's tokens enter the model, and returns their positions: the original ones, or
  // 0, 1, ... if `compact`.
  std::vector<int32_t> Enter(const TokenSet& entering, bool compact);
  // Fills the caches with the rows that `prefix` reuses.
  void RestorePrefix();
  // Makes room in one layer's cache for `rows` rows of the prompt and an answer of usual length.
  void Reserve(int l, int64_t rows);

  // The tables of a layer's rope (LayerShape::rope); empty for kNoRope.
  RopeTable RopeOf(int rope) const {
    return rope == kNoRope ? RopeTable{} : ropes[static_cast<size_t>(rope)].view();
  }
  // Makes them hold at least `positions` rows.
  void ReachRope(int64_t positions);

  // Forgets the keys and values of a layer, which must not be read again.
  void DropKeys(int l);

  // Takes back the last `tokens` positions of a plain decode step (IsPlainDecode).
  void DropLast(int64_t tokens);

  DType cache_type() const { return layers.front().cache.dtype(); }  // of every layer
  int64_t kv_bytes() const;
  int64_t dense_kv_bytes(int64_t tokens) const;  // of this many tokens with keys and values in every layer
  int64_t cold_bytes() const { return cold ? cold->bytes() : 0; }
  TraceBytes bytes_held() const { return {.kv = kv_bytes(), .aux = aux.bytes(), .cold = cold_bytes()}; }

  std::vector<LayerState> layers;
  // depth[p]: how many layers position p has passed, each of which holds its key and value, hot or cold. A
  // token that was never dropped has as many as the model has layers; one that never entered has 0. Neither
  // eviction nor a layer that skipped the token (TokenPolicy::RunAttention) changes it.
  std::vector<int32_t> depth;
  std::vector<int32_t> tokens;  // the id of the token at each position
  AuxCache aux{DType::kF32, 0};
  std::unique_ptr<ColdCache> cold;  // null until something is offloaded
  std::vector<RopeTables> ropes;    // as in ModelConfig
  Ledger ledger;
  ColdOptions cold_options;
  TraceRecorder* trace = nullptr;  // may be null
  // What the prompt reuses from an earlier prompt. The caller has checked it against RulesOf.
  PrefixUse prefix;
  PrefixCapture* capture = nullptr;  // collects what later prompts may reuse; may be null
  int64_t prompt_tokens = 0;         // positions that the prompt takes
  int64_t entered = 0;               // prompt tokens that entered the model
  std::vector<int32_t> input;        // [entered] their indices in the prompt
  int64_t capacity = 0;              // positions that the sequence may grow to

 private:
  int64_t RoomForAnswer() const;
};

// Bytes per token: of its parked hidden state, and of its key and value in one layer, in each and in all.
int64_t ParkedBytes(const ModelShape& shape, DType cache_type);
int64_t LayerBytes(const LayerShape& layer, DType cache_type);
std::vector<int64_t> LayerBytes(const ModelShape& shape, DType cache_type);
int64_t TokenBytes(const ModelShape& shape, DType cache_type);

// Throws Error if the heads of a layer do not fill the blocks of a type of keys and values.
void CheckCacheType(const ModelShape& shape, DType cache_type);

}  // namespace coppice
