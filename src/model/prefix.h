// The partial-depth prefix: the states of a prompt that later prompts with the same beginning can reuse.
//
// Attention is causal, so the keys, values and hidden states of a prompt's first m tokens do not depend on
// what follows. This holds up to the first point at which a method's choice depends on the rest of the
// prompt: there the question's queries score the document's tokens, and the run needs all hidden states of
// the beginning. So a prefix consists of
//   the keys and values of the layers below the point, and the hidden states X at the point.
// A later prompt runs only its remaining rows through these layers. At the point, X is put in front of them,
// and the run continues like one without a prefix. The kernels are batch invariant, so both give the same
// result, bit for bit. In a dense run the point is after the last layer, and X is not needed: this is an
// ordinary prefix cache.
//
// Rows that every choice keeps are those of a dense run in every layer, if no row before them is ever left
// out. So a pruned run can take its first protected rows over from a later point than its own, also from a
// dense run. They stay in front of the stream up to that point: their keys are attended and scored, and no
// hidden states of theirs are needed. Likewise a pruned run leaves a dense run's states of these rows.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/model_shape.h"
#include "kv/layer_cache.h"
#include "model/layer_state.h"
#include "model/recurrent_state.h"
#include "policies/policy.h"
#include "tensor/tensor.h"

namespace coppice {

// The owner of a prefix. A server with several API keys has one owner for each key and salt. A `key` of 0
// means that there is only one key; a `salt` of 0 means no salt.
struct PrefixOwner {
  uint64_t key = 0;   // a hash of the API key
  uint64_t salt = 0;  // a hash of the request's cache_salt
  friend bool operator==(const PrefixOwner&, const PrefixOwner&) = default;
};

// What a request says of its prefix's worth to later requests.
struct PrefixHint {
  uint64_t conversation = 0;  // requests with the same value belong to one conversation; 0: unknown
  std::chrono::seconds
      lifetime{};  // for this long the prefix outranks others of the same key; 0: it does not
  // A read of the server's own, which no client asked for: no turn of a conversation. What it adds to an
  // entry is kept, however little it is.
  bool is_own_read = false;
};

// Immutable: sequences and caches share it.
struct PrefixState {
  struct Layer {
    Tensor keys;    // [tokens, kv_heads * head_dim] in the cache's type, after RoPE; empty without heads
    Tensor values;  // the same
  };
  // The states of the layers below the point behind the first `rows` tokens; empty where a layer attends. A
  // state cannot be cut back as keys can, so reuse ends at one of these.
  struct Checkpoint {
    int64_t rows = 0;
    std::vector<RecurrentSnapshot> layers;
  };

  PrefixOwner owner;
  std::vector<int32_t> tokens;  // of positions 0, 1, ...
  LayerPoint point;
  bool complete = true;       // false: the prefill was cancelled before its point
  std::vector<Layer> layers;  // the layers that have keys at the point
  Tensor hidden;              // [tokens, d] fp32 at the point; empty if no layer follows
  // By rows, ascending. Empty if no layer below the point has a state. Shared with the entry from which a
  // longer one took them over.
  std::vector<std::shared_ptr<const Checkpoint>> checkpoints = {};
  bool has_states = false;  // a layer below the point has one

  // The most rows, up to `rows`, that a prompt can reuse; 0: none.
  int64_t ReusableRows(int64_t rows) const;
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t bytes() const;
};

// The number of layers that have keys at a point.
inline int LayersWithKeys(LayerPoint point) { return point.layer + (point.after_attention ? 1 : 0); }

// The work per token below a point, in half layers.
inline int64_t DepthOf(LayerPoint point) {
  return 2 * int64_t{point.layer} + (point.after_attention ? 1 : 0);
}

// Rows of a prompt from one checkpoint to the next, at most: so many are computed again where a prompt leaves
// an earlier one in the middle of a text. llama.cpp's server has 8,192.
inline constexpr int64_t kCheckpointEvery = 4096;
// And at least, but for the last ones: a checkpoint of all layers takes the memory of some thousand rows.
inline constexpr int64_t kLeastBetweenCheckpoints = 256;

// Of a prompt's first `rows` rows, of which `reused` are taken over: behind which of them its prefix keeps
// states. `turns`: where parts of a conversation begin, ascending; the next prompt may differ from the last
// two of them on. `tail`: PrefixRules::tail.
std::vector<int64_t> CheckpointsOf(int64_t rows, int64_t reused, int64_t tail,
                                   std::span<const int64_t> turns);

// The size in bytes that a PrefixState of `tokens` tokens will have.
int64_t PrefixBytes(const ModelShape& shape, DType cache_type, LayerPoint point, int64_t tokens,
                    int64_t checkpoints = 0);

// What a policy allows a prompt to reuse from earlier prompts and to keep for later ones.
struct PrefixRules {
  // Up to this point the states equal those of every other prompt with the same beginning. {0}: nothing can
  // be reused.
  LayerPoint point;
  int64_t tail = 1;  // number of rows at the end that must be computed, because their queries score
  // The prompt's first rows that are a dense run's in every layer: protected ones. 0: none, or the method
  // reads something of them that later points do not keep, or sparse attention changes them.
  int64_t dense = 0;
  // Of these, how many may be taken over from a later point than `point`: those before the first query that
  // scores, in whatever layer.
  int64_t dense_taken = 0;
};
PrefixRules RulesOf(const TokenPolicy& policy, int layers, int64_t tokens);

// What one sequence reuses: the first `rows` rows of a state.
struct PrefixUse {
  std::shared_ptr<const PrefixState> state;  // null, and rows 0, if nothing is reused
  int64_t rows = 0;
};

// Fills the empty cache of layer `layer`, which is below the point, with the reused rows.
void RestoreKeys(const PrefixUse& use, size_t layer, LayerCache& cache);

// Copies what a prefill computes on its way to a point. If the prefill is cancelled earlier, the states at
// the beginning of its last layer form an incomplete prefix, from which a retry continues.
class PrefixCapture {
 public:
  // `layers`: the model's number of layers. `point` must be later than the beginning of layer 0, where
  // nothing has been computed yet. `rows`: it copies the prompt's first rows alone, which must stay in every
  // layer below the point; kAllRows: all rows, which must.
  static constexpr int64_t kAllRows = -1;
  // `checkpoints`: the rows behind which it keeps the states of layers, ascending; only where a layer below
  // the point has one.
  PrefixCapture(LayerPoint point, int layers, int64_t rows = kAllRows, std::vector<int64_t> checkpoints = {});

  // The checkpoints that layer `layer` should add, if it has a state.
  std::span<const int64_t> CheckpointsIn(int layer) const;
  void Add(int layer, int64_t checkpoint, RecurrentSnapshot state);

  // Call it when the stream reaches `at`. `hidden` [tokens, d]: all rows of the prompt, or empty until a
  // reused prefix has joined. Reach reads what the layer keeps only if `at` is after the attention.
  void Reach(LayerPoint at, const TensorView& hidden, const LayerState& layer);

  // Checkpoints of a state at the same point that the run takes over.
  void Inherit(std::span<const std::shared_ptr<const PrefixState::Checkpoint>> earlier) {
    inherited_.assign(earlier.begin(), earlier.end());
  }

  // Returns what was captured in the prefill of `tokens`, the whole prompt, or null. Call it once.
  std::shared_ptr<const PrefixState> Take(std::vector<int32_t> tokens, const PrefixOwner& owner = {});

 private:
  void CopyHidden(LayerPoint at, const TensorView& hidden);
  TensorView Wanted(const TensorView& all) const { return rows_ == kAllRows ? all : all.Rows(0, rows_); }

  LayerPoint point_;
  int layers_;
  int64_t rows_;
  bool complete_ = false;
  LayerPoint reached_;  // the point of hidden_
  std::vector<PrefixState::Layer> captured_;
  std::optional<size_t> first_state_;  // the first layer captured that has a state
  std::vector<int64_t> wanted_checkpoints_;
  std::map<int64_t, std::vector<RecurrentSnapshot>> checkpoints_;
  std::vector<std::shared_ptr<const PrefixState::Checkpoint>> inherited_;
  Tensor hidden_;
};

}  // namespace coppice
