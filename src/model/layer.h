// One decoder layer.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kv/layer_cache.h"
#include "model/config.h"
#include "model/ledger.h"
#include "model/stream.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "policies/policy.h"

namespace coppice {

// What a layer needs besides the stream and its own weights; the same for all layers of a pass.
struct LayerContext {
  TokenPolicy& policy;
  RopeTable rope;      // empty where positions are ALiBi's
  bool last_row_only;  // whether only the last row's output of the last layer is wanted
  Workspace& ws;
  Backend& be;
};

class Layer {
 public:
  // `config` and `weights` must outlive the layer; `alibi_slopes` is [heads] or empty.
  Layer(int index, const ModelConfig& config, const LayerWeights& weights,
        std::span<const float> alibi_slopes);

  // Advances the stream through this layer and adds its keys and values to the cache.
  void Forward(Stream& x, LayerCache& cache, LayerCounts& counts, const LayerContext& run) const;

 private:
  void Attention(Stream& x, LayerCache& cache, const Needs& needs, const LayerContext& run) const;
  void StoreKeysValues(const TensorView& normed, std::span<const int32_t> positions,
                       const LayerCache::Fresh& fresh, const LayerContext& run) const;
  void Attend(const TensorView& normed, std::span<const int32_t> positions, const LayerCache& cache,
              MutableTensorView hidden, const LayerContext& run) const;
  void Observe(const Needs& needs, Stream& x, const LayerCache& cache, const LayerContext& run) const;
  void Ffn(const TokenSet& rows, Stream& x, const LayerContext& run) const;
  void ApplyNorm(const Norm& norm, const TensorView& x, MutableTensorView y, Backend& be) const;
  bool IsLast() const { return index_ + 1 == config_.shape.layers; }

  int index_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  AttentionShape attention_;
};

}  // namespace coppice
