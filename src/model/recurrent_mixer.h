// The mixer of a layer that carries a state from row to row (kernels/recurrence.h). n = norm(x), z = W_z n:
//   gated delta  (q, k, v) = conv(W n);  o = the recurrence;  y = norm(o) silu(z)
//   Mamba-2      (v, k, q) = conv(W n);  o = the recurrence;  y = norm(o silu(z))
//   short conv   (b, c, u) = W n;  y = c conv(b u)
//   x' = x + W_o y
// A row that a method dropped is in no later state: the recurrence runs over the rows that are left.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/decode_batch.h"
#include "model/pass.h"
#include "model/stream.h"
#include "model/weights.h"

namespace coppice {

class RecurrentMixer {
 public:
  // `config` and `weights` must outlive it.
  RecurrentMixer(int layer, const ModelConfig& config, const LayerWeights& weights);

  // Runs the stream's rows; with `last_only`, only the last one gets the output. The state behind the rows at
  // which the sequence's capture has a checkpoint goes to it.
  void Forward(Stream& x, bool last_only, const Pass& pass) const;
  // The same for plain decode steps of several sequences.
  void Step(DecodeBatch& batch) const;

 private:
  void Prepare(const std::vector<Tile>& all, const std::vector<Tile>& finished, Workspace& ws,
               Backend& be) const;
  // norm(x), in the workspace.
  MutableTensorView Normalise(const TensorView& x, Workspace& ws, Backend& be) const;
  void Gate(int64_t rows, int64_t begin, ProductKind kind, Workspace& ws, Backend& be) const;
  void Project(const TensorView& x, ProductKind kind, Workspace& ws, Backend& be) const;
  // Of rows of the projections: the steps, and behind them the betas.
  MutableTensorView Steps(RecurrentSpace& space, int64_t begin, int64_t rows) const;
  void Advance(RecurrentState& state, int64_t begin, int64_t count, Workspace& ws, Backend& be) const;
  // y of rows [begin, begin + count) of the projections, into x.
  void Finish(int64_t begin, MutableTensorView x, ProductKind kind, Workspace& ws, Backend& be) const;
  RecurrenceRows RowsOf(const TensorView& convolved, const TensorView& steps, RecurrentState& state,
                        MutableTensorView out) const;
  void CatchUp(std::span<RecurrentState* const> states, Backend& be) const;
  void StepPart(RecurrentState& state, int64_t first, int64_t rows, std::vector<RecurrenceRows>& recur,
                Workspace& ws, Backend& be) const;
  bool recurs() const { return shape_.key_heads > 0; }

  int layer_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  const RecurrentWeights& own_;
  MixerKind kind_;
  const RecurrentShape& shape_;
  RecurrenceShape recurrence_;
};

}  // namespace coppice
