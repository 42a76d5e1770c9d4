// The partial-depth prefix: what a prompt's beginning leaves for later prompts that begin alike.
//
// Attention is causal, so the keys, values and hidden states of a prompt's first m tokens depend on nothing that
// follows, up to the first point at which a method lets the rest of the prompt decide (the question's queries score the
// document's tokens). There, and not before, every hidden state of the beginning is needed. So a prefix is
//   the keys and values of the layers below the point, and the hidden states X at the point,
// and a later prompt runs its own rows alone through these layers; at the point X joins them in front, and everything
// goes on as in a fresh run. The kernels are batch invariant, so the result is the fresh run's, bit for bit.
// Of a dense run the point is behind the last layer, and X is not needed: an ordinary prefix cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/layer_cache.h"
#include "policies/policy.h"
#include "policies/shape.h"
#include "tensor/tensor.h"

namespace coppice {

// Immutable once made: sequences and caches share it.
struct PrefixState {
  struct Layer {
    Tensor keys;    // [tokens, kv_heads * head_dim] in the cache's type, after RoPE
    Tensor values;  // the same
  };

  std::vector<int32_t> tokens;  // at positions 0, 1, ...
  LayerPoint point;
  bool complete = true;       // false: of a prefill that was cancelled before its point
  std::vector<Layer> layers;  // those that have keys at the point
  Tensor hidden;              // [tokens, d] fp32 at the point; empty where no layer follows

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t bytes() const;
};

// How many layers have keys at a point.
inline int LayersWithKeys(LayerPoint point) { return point.layer + (point.after_attention ? 1 : 0); }

// The bytes of a PrefixState of `tokens` tokens, before there is one.
int64_t PrefixBytes(const ModelShape& shape, DType cache_type, LayerPoint point, int64_t tokens);

// What a policy allows a prompt of so many tokens to take over and to leave.
struct PrefixRules {
  LayerPoint
      point;  // states of up to here are those of any other prompt with the same beginning; {0} is none
  int64_t tail = 1;  // so many rows at the end must be computed, because their queries score
};
PrefixRules RulesOf(const TokenPolicy& policy, int layers, int64_t tokens);

// What one sequence takes over: the first `rows` rows of a state.
struct PrefixUse {
  std::shared_ptr<const PrefixState> state;  // null, and rows 0, where nothing is
  int64_t rows = 0;
};

// Fills the empty cache of layer `layer`, which is below the point, with the reused rows.
void RestoreKeys(const PrefixUse& use, size_t layer, LayerCache& cache);

// Copies what a prefill computes on its way to a point. Where it is cancelled before, what is there of the last layer
// that was begun makes a state of its own, from which a retry goes on.
class PrefixCapture {
 public:
  // `layers`: of the model. `point` is not the beginning of layer 0: nothing has been computed there.
  PrefixCapture(LayerPoint point, int layers);

  // The stream has come to `at`. `hidden` [tokens, d]: all of the prompt's rows; empty while rows taken over still wait
  // in front. `cache`: of the layer, as its attention left it; looked at after the attention alone.
  void Reach(LayerPoint at, const TensorView& hidden, const LayerCache& cache);

  // What was captured of a prefill of these tokens; null where nothing was. Once.
  std::shared_ptr<const PrefixState> Take(std::vector<int32_t> tokens);

 private:
  void CopyHidden(LayerPoint at, const TensorView& hidden);

  LayerPoint point_;
  int layers_;
  bool complete_ = false;
  LayerPoint reached_;  // of hidden_
  std::vector<PrefixState::Layer> captured_;
  Tensor hidden_;
};

}  // namespace coppice
