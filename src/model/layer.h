// One decoder layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/observe.h"
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

// A sparse pattern that keeps more than this share of the pairs is run densely. A pattern of density 0.965 was
// slower than dense attention (16k tokens, AVX-512: 9.1 s against 7.3 s).
inline constexpr double kNearlyDense = 0.95;

class Layer {
 public:
  // `config` and `weights` must outlive the layer; `alibi_slopes` is [heads] or empty.
  Layer(int index, const ModelConfig& config, const LayerWeights& weights,
        std::span<const float> alibi_slopes);

  // Advances the stream through this layer and adds its keys and values to the cache of its sequence.
  void Forward(Stream& x, const LayerContext& run) const;

 private:
  // layer_attention.cpp
  void Attention(Stream& x, const LayerContext& run) const;
  void StoreKeysValues(Stream& x, const std::vector<Tile>& tiles, const LayerContext& run) const;
  void StoreTile(Stream& x, const Tile& tile, std::span<const int32_t> rows, const LayerContext& run) const;
  AttendedKeys KeysOf(Stream& x, const LayerContext& run) const;
  TensorView Queries(Stream& x, const Tile& tile, const LayerContext& run) const;
  SparsePattern ChoosePattern(Stream& x, const std::vector<Tile>& tiles, const AttendedKeys& keys,
                              std::span<const int32_t> query_positions, const LayerContext& run) const;
  void Attend(const AttentionInput& in, const AttendedKeys& keys, ProductKind kind, MutableTensorView out,
              const LayerContext& run) const;
  void Retain(Stream& x, const LayerContext& run) const;
  Needs NeedsOf(const Stream& x, const LayerContext& run) const;
  template <typename Summary>
  void AddKeysInFront(Stream& x, Summary& summary) const;
  UnitKeys* UnitsOf(Stream& x, const LayerContext& run) const;
  PageBounds* PagesOf(Stream& x, const LayerContext& run) const;

  // layer.cpp
  // `fill_from`: of `rows`, whose mean output the other rows get; may be none.
  void Ffn(const TokenSet& rows, const TokenSet& fill_from, Stream& x, const LayerContext& run) const;
  void Record(const TokenSet& ffn_rows, Stream& x) const;
  void ApplyNorm(const Norm& norm, const TensorView& x, MutableTensorView y, Backend& be) const;
  bool LastRowOnly(const LayerContext& run) const {
    return run.last_row_only && index_ + 1 == config_.shape.layers;
  }

  int index_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  AttentionShape attention_;
};

}  // namespace coppice
