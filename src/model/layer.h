// One decoder layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/attention_frame.h"
#include "model/config.h"
#include "model/decode_batch.h"
#include "model/pass.h"
#include "model/recurrent_mixer.h"
#include "model/stream.h"
#include "model/weights.h"
#include "policies/policy.h"

namespace coppice {

// A sparse pattern that keeps more than this share of the query-key pairs is run densely. A pattern of
// density 0.965 was slower than dense attention (16k tokens, AVX-512: 9.1 s against 7.3 s).
inline constexpr double kNearlyDense = 0.95;

// How a layer attends: its sizes and window, and what its attention may round to 8 bits, which its weights
// decide.
AttentionShape AttentionOf(const ModelConfig& config, int layer, const LayerWeights& weights,
                           std::span<const float> alibi_slopes);

struct ExpertRows;  // layer_mixture.cpp

class Layer {
 public:
  // `config` and `weights` must outlive the layer; `alibi_slopes` is [heads] or empty. Indices of the tail go
  // on behind those of the layers.
  Layer(int index, const ModelConfig& config, const LayerWeights& weights,
        std::span<const float> alibi_slopes);
  virtual ~Layer() = default;

  // Advances the stream through this layer and adds its keys and values to the sequence's cache.
  void Forward(Stream& x, const Pass& pass) const;
  // The same for plain decode steps of several sequences (IsPlainDecode).
  void Step(DecodeBatch& batch) const;
  // Both for a layer of ModelShape::tail.
  void Tail(Stream& x, const Pass& pass) const;
  void TailStep(DecodeBatch& batch) const;

 protected:
  // The layer's arithmetic, which a dry run replaces (engine/dry_run.cpp).
  // The attention, the mixer with a state, or nothing.
  virtual void Mix(Stream& x, const Pass& pass) const;
  virtual void Ffn(const TokenSet& rows, Stream& x, const Pass& pass) const;
  // What follows the FFN (layer_end.cpp).
  virtual void EndRows(Stream& x, const Pass& pass) const;

  // The scores that the policy needs after this attention.
  Needs NeedsOf(const Stream& x, const Pass& pass) const;
  // Whether the policy chooses the rows that attend here; it is asked, and the cache keeps the rows that it
  // chose.
  bool Probes(const Stream& x, const Pass& pass) const;
  TokenSet ChooseAttending(Stream& x, const Pass& pass) const;
  bool AsksPattern(const Stream& x, const Pass& pass) const;
  // Asks the policy for the pattern of the queries and keys in `in`. An empty pattern means dense attention.
  SparsePattern AskPattern(const Stream& x, const AttentionInput& in, const Pass& pass) const;
  bool LastRowOnly(const Stream& x) const {
    return x.last_row_only() && index_ + 1 == config_.shape.layer_count();
  }
  const LayerShape& shape() const { return shape_; }

 private:
  // layer_attention.cpp
  void Attention(Stream& x, const Pass& pass) const;
  void StoreKeysValues(Stream& x, const std::vector<Tile>& tiles, const Pass& pass) const;
  void StoreTile(Stream& x, const Tile& tile, std::span<const int32_t> cache_rows, const Pass& pass) const;
  void StoreShares(Stream& x, std::span<const int32_t> cache_rows, const Pass& pass) const;
  // Rotates the keys in kv [rows, keys and values] and writes both to the cache.
  void StoreRows(MutableTensorView kv, std::span<const int32_t> positions,
                 std::span<const int32_t> cache_rows, SequenceState& sequence, Backend& be) const;
  void BeginSummaries(const Stream& x, const Pass& pass) const;
  static void AddToSummaries(LayerState& layer, std::span<const int32_t> cache_rows);
  // Makes new queries or keys ready to attend, in place: their norm, if the model has one, and the layer's
  // RoPE, if it has one.
  void FinishHeads(const Norm& norm, std::span<const int32_t> positions, const SequenceState& sequence,
                   MutableTensorView x, Backend& be) const;
  void FinishQueries(std::span<const int32_t> positions, const SequenceState& sequence, MutableTensorView q,
                     Backend& be) const;
  AttentionFrame FrameOf(Stream& x, bool in_place, const Pass& pass) const;
  // The queries of a tile [tile.count, heads * head_dim], ready to attend: in ws.q, valid until the next
  // call, or in `q`.
  TensorView Queries(Stream& x, const Tile& tile, const Pass& pass) const;
  void QueriesInto(Stream& x, const Tile& tile, MutableTensorView q, const Pass& pass) const;
  SparsePattern ChoosePattern(Stream& x, const std::vector<Tile>& tiles, const AttentionFrame& frame,
                              const Pass& pass) const;
  void PrepareOutput(const std::vector<Tile>& tiles, Workspace& ws, Backend& be) const;
  // Ends an attention over the rows `x` of the stream: y = output(attended), or adds it to y; y may be x.
  // Where the layer has a gate, attended * sigmoid(gate(norm(x))) goes into the output.
  struct Attended {
    TensorView x;
    TensorView values;  // [rows, heads * head_dim]
    ProductKind kind;
  };
  void FinishAttention(const Attended& of, ProductEnd end, MutableTensorView y, Workspace& ws,
                       Backend& be) const;
  void Retain(Stream& x, const Pass& pass) const;

  // layer_probe.cpp
  void ProbedAttention(Stream& x, const Pass& pass) const;
  void StoreKeys(Stream& x, const Pass& pass) const;
  void ScoreBeforeAttention(Stream& x, const Pass& pass) const;
  // `rows` are those that attend, in the order of the cache's rows.
  void StoreValues(const TokenSet& rows, Stream& x, const Pass& pass) const;
  void AttendChosen(const TokenSet& rows, Stream& x, const Pass& pass) const;
  // The hidden states of rows[tile.begin, tile.begin + tile.count): in place, or gathered.
  MutableTensorView RowsOfTile(const TokenSet& rows, const Tile& tile, Stream& x, const Pass& pass) const;

  // layer_end.cpp
  void End(const std::vector<Tile>& tiles, std::span<const int32_t> tokens, MutableTensorView x,
           Workspace& ws, Backend& be) const;
  void AddOwnEmbedding(std::span<const int32_t> tokens, ProductKind kind, MutableTensorView x, Workspace& ws,
                       Backend& be) const;

  // layer_step.cpp
  // x += FFN(norm(x)), or the mixture in its place; nothing where the layer has neither.
  void AddFfn(const std::vector<Tile>& tiles, MutableTensorView x, Workspace& ws, const RunControl& control,
              Backend& be) const;
  void AttendStep(DecodeBatch& batch) const;
  OwnAttention OwnOf(const DecodeBatch::Part& part, const TensorView& queries) const;
  OwnAttention StoreOwn(const DecodeBatch::Part& part, MutableTensorView kv, MutableTensorView q,
                        Backend& be) const;

  // layer.cpp
  TokenSet FfnRows(Stream& x, const Pass& pass) const;
  void PrepareFfn(const std::vector<Tile>& tiles, Workspace& ws, const RunControl& control,
                  Backend& be) const;
  // The activation of an FFN without a gate, in place.
  void Activate(MutableTensorView x, Backend& be) const;
  // y = FFN(norm(x)), or adds it to y; x and y may be the same.
  void FfnTile(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y, Workspace& ws,
               Backend& be) const;
  // What the FFN adds to these rows of the stream: in the workspace, valid until the next call.
  TensorView FfnOfRows(std::span<const int32_t> rows, ProductKind kind, Stream& x, const Pass& pass) const;
  // y = norm(x), or a copy of x if the architecture has no such norm.
  void ApplyNorm(const Norm& norm, const TensorView& x, MutableTensorView y, Backend& be) const;
  // The same for a norm of what is added to x.
  void ApplyPostNorm(const Norm& norm, MutableTensorView x, Backend& be) const;
  // The last product of attention or FFN: y = post_norm(x w^T), or adds this to y. Most models have no such
  // norm.
  struct Ending {
    Projection& product;
    const Norm& post_norm;
  };
  void Finish(Ending with, const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y,
              Workspace& ws, Backend& be) const;

  // layer_mixture.cpp
  struct Expert {
    const Linear* gate;  // null: it has none
    const Linear& up;
    const Linear& down;
  };
  struct WeightedRows {
    std::span<const int32_t> rows;   // of ws.mixture.normed
    std::span<const float> weights;  // [rows]
  };
  // What the mixture adds to the rows of x: in ws.mixture, valid until the next call.
  TensorView Mixture(const TensorView& x, ProductKind kind, Workspace& ws, const RunControl& control,
                     Backend& be) const;
  ExpertRows RouteByExpert(const TensorView& normed, MixtureSpace& space, Backend& be) const;
  // Adds what the expert gives, times the weights, to ws.mixture.sum.
  void RunExpert(const Expert& expert, const WeightedRows& on, ProductKind kind, Workspace& ws,
                 Backend& be) const;
  // The same for all experts of a decode step: the first products of all together, then the second.
  void StepExperts(const ExpertRows& by_expert, Workspace& ws, Backend& be) const;
  void RunShared(ProductKind kind, Workspace& ws, Backend& be) const;
  bool has_mixture() const { return shape().mixture.experts > 0; }
  // The layer whose cache it attends.
  int keys_of() const { return shape_.keys_of == kOwnKeys ? index_ : shape_.keys_of; }

  int index_;
  const LayerShape& shape_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  AttentionShape attention_;
  std::optional<RecurrentMixer> recurrent_;  // of a layer with a state
};

}  // namespace coppice
