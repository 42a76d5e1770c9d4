#include "model/recurrent_mixer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/record.h"

namespace coppice {

RecurrentMixer::RecurrentMixer(int layer, const ModelConfig& config, const LayerWeights& weights)
    : layer_(layer),
      config_(config),
      weights_(weights),
      own_(weights.recurrent),
      kind_(config.shape.layer(layer).mixer),
      shape_(config.shape.layer(layer).recurrent),
      recurrence_{.rule = kind_ == MixerKind::kMamba2 ? RecurrenceRule::kMamba2 : RecurrenceRule::kGatedDelta,
                  .key_heads = shape_.key_heads,
                  .value_heads = shape_.value_heads,
                  .key_dim = shape_.key_dim,
                  .value_dim = shape_.value_dim,
                  .tiled = shape_.tiled} {}

void RecurrentMixer::Forward(Stream& x, bool last_only, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  RecurrentState& state = pass.sequence.layer(layer_).recurrent;
  state.Begin(shape_);
  RecurrentState* const one = &state;
  CatchUp({&one, 1}, be);
  const std::vector<Tile> tiles = x.Tiles(ws.tile_rows);
  const std::vector<Tile> last = {{x.rows() - 1, 1, ProductKind::kDecode}};
  Prepare(tiles, last_only ? last : tiles, ws, be);
  for (const Tile& tile : tiles) {
    pass.control.Tick(layer_ + 0.5 * static_cast<double>(tile.begin) / static_cast<double>(x.rows()));
    const MutableTensorView rows = x.hidden().Rows(tile.begin, tile.count);
    Project(rows, tile.kind, ws, be);
    if (!last_only) Gate(tile.count, 0, tile.kind, ws, be);
    int64_t begin = 0;
    if (x.prefill() && pass.sequence.capture != nullptr) {
      for (const int64_t checkpoint : pass.sequence.capture->CheckpointsIn(layer_)) {
        const int64_t end = x.RowOf(checkpoint) - tile.begin;
        if (end <= begin || end > tile.count) continue;
        Advance(state, begin, end - begin, ws, be);
        pass.sequence.capture->Add(layer_, checkpoint, state.now.Clone());
        begin = end;
      }
    }
    if (begin < tile.count) Advance(state, begin, tile.count - begin, ws, be);
    if (!last_only) {
      Finish(0, rows, tile.kind, ws, be);
    } else if (tile.begin + tile.count == x.rows()) {
      const MutableTensorView row = x.hidden().Rows(x.rows() - 1, 1);
      Normalise(row, ws, be);
      Gate(1, tile.count - 1, ProductKind::kDecode, ws, be);
      Finish(tile.count - 1, row, ProductKind::kDecode, ws, be);
    }
  }
  x.seen().ClearScores();
  RecordAttention(x, {.stored = x.rows(), .queries = last_only ? 1 : x.rows()});
}

void RecurrentMixer::Prepare(const std::vector<Tile>& all, const std::vector<Tile>& finished, Workspace& ws,
                             Backend& be) const {
  RecurrentSpace& space = ws.recurrent;
  space.mixed.Prepare(own_.mixed, all, ws.kept, be);
  if (recurs()) {
    space.gate.Prepare(own_.gate, finished, ws.kept, be);
    if (own_.beta.weight.empty()) {
      space.step.Prepare(own_.step, all, ws.kept, be);
    } else {
      space.step.PrepareStacked(own_.step, own_.beta, all, ws.kept, be);
    }
  }
  ws.output.Prepare(weights_.output, finished, ws.kept, be);
}

MutableTensorView RecurrentMixer::Steps(RecurrentSpace& space, int64_t begin, int64_t rows) const {
  return space.steps.mutable_view().Rows(begin, rows).Cols(0, own_.step.weight.rows + own_.beta.weight.rows);
}

MutableTensorView RecurrentMixer::Normalise(const TensorView& x, Workspace& ws, Backend& be) const {
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, x.rows);
  be.RmsNorm(x, weights_.attention_norm.weight, static_cast<float>(config_.norm_eps), normed);
  return normed;
}

// Of the rows that Normalise was called with, for rows [begin, begin + rows) of the projections.
void RecurrentMixer::Gate(int64_t rows, int64_t begin, ProductKind kind, Workspace& ws, Backend& be) const {
  if (!recurs()) return;
  RecurrentSpace& space = ws.recurrent;
  space.gate(ws.normed.view().Rows(0, rows), kind, ProductEnd::kStore,
             space.gates.mutable_view().Rows(begin, rows), be);
}

// Of the rows x, in the workspace's first rows.
void RecurrentMixer::Project(const TensorView& x, ProductKind kind, Workspace& ws, Backend& be) const {
  RecurrentSpace& space = ws.recurrent;
  space.Fit(shape_, own_.mixed.weight.rows, ws.tile_rows);
  const TensorView normed = Normalise(x, ws, be);
  space.mixed(normed, kind, ProductEnd::kStore, space.inputs.mutable_view().Rows(0, x.rows), be);
  if (recurs()) {
    space.step(normed, kind, ProductEnd::kStore, Steps(space, 0, x.rows), be);
    return;
  }
  const MutableTensorView inputs = space.inputs.mutable_view().Rows(0, x.rows);
  const int64_t d = shape_.channels;
  be.GateMul(inputs.Cols(0, d), inputs.Cols(2 * d, d), Activation::kIdentity);
}

RecurrenceRows RecurrentMixer::RowsOf(const TensorView& convolved, const TensorView& steps,
                                      RecurrentState& state, MutableTensorView out) const {
  const int64_t keys = shape_.key_width();
  const int64_t values = shape_.value_width();
  const bool delta = kind_ == MixerKind::kGatedDelta;
  const int heads = shape_.value_heads;
  return {.q = convolved.Cols(delta ? 0 : values + keys, keys),
          .k = convolved.Cols(delta ? keys : values, keys),
          .v = convolved.Cols(delta ? 2 * keys : 0, values),
          .step = steps.Cols(0, heads),
          .beta = delta ? steps.Cols(heads, heads) : TensorView(),
          .state = state.now.state.mutable_view(),
          .out = out};
}

void RecurrentMixer::Advance(RecurrentState& state, int64_t begin, int64_t count, Workspace& ws,
                             Backend& be) const {
  RecurrentSpace& space = ws.recurrent;
  const TensorView inputs = space.inputs.view().Rows(begin, count).Cols(0, shape_.channels);
  const MutableTensorView convolved = space.convolved.mutable_view().Rows(begin, count);
  be.Convolve(inputs, state.now.last.view(), own_.convolution, convolved);
  ShiftRows(inputs, state.now.last.mutable_view());
  if (!recurs()) return;
  const RecurrenceRows rows =
      RowsOf(convolved, Steps(space, begin, count), state, space.outputs.mutable_view().Rows(begin, count));
  be.Recur(recurrence_, own_.recurrence, {&rows, 1});
}

void RecurrentMixer::Finish(int64_t begin, MutableTensorView x, ProductKind kind, Workspace& ws,
                            Backend& be) const {
  RecurrentSpace& space = ws.recurrent;
  if (!recurs()) {
    const MutableTensorView y = space.convolved.mutable_view().Rows(begin, x.rows);
    const TensorView behind = space.inputs.view().Rows(begin, x.rows).Cols(shape_.channels, shape_.channels);
    be.GateMul(y, behind, Activation::kIdentity);
    return ws.output(y, kind, ProductEnd::kAdd, x, be);
  }
  const auto eps = static_cast<float>(config_.recurrent_norm_eps);
  const MutableTensorView gate = space.gates.mutable_view().Rows(begin, x.rows);
  const MutableTensorView out = space.outputs.mutable_view().Rows(begin, x.rows);
  if (kind_ == MixerKind::kGatedDelta) be.RmsNorm(out, own_.norm.weight, eps, out);
  be.GateMul(gate, out, Activation::kSilu);
  if (kind_ == MixerKind::kMamba2) {
    const int64_t width = gate.cols / shape_.norm_groups;
    for (int64_t c = 0; c < gate.cols; c += width) {
      const MutableTensorView part = gate.Cols(c, width);
      be.RmsNorm(part, own_.norm.weight.Cols(c, width), eps, part);
    }
  }
  ws.output(gate, kind, ProductEnd::kAdd, x, be);
}

void RecurrentMixer::CatchUp(std::span<RecurrentState* const> states, Backend& be) const {
  std::vector<Tensor> outputs;  // nobody reads them
  std::vector<RecurrenceRows> recur;
  for (RecurrentState* const state : states) {
    const int64_t rows = std::exchange(state->pending, 0);
    if (rows == 0) continue;
    ShiftRows(state->inputs.view().Rows(0, rows), state->now.last.mutable_view());
    if (!recurs()) continue;
    outputs.emplace_back(DType::kF32, rows, shape_.value_width());
    recur.push_back(RowsOf(state->convolved.view().Rows(0, rows), state->steps.view().Rows(0, rows), *state,
                           outputs.back().mutable_view()));
  }
  if (!recur.empty()) be.Recur(recurrence_, own_.recurrence, recur);
}

void RecurrentMixer::Step(DecodeBatch& batch) const {
  Workspace& ws = batch.workspace();
  Backend& be = batch.backend();
  std::vector<RecurrentState*> states;
  for (const DecodeBatch::Part& part : batch.parts()) {
    states.push_back(&part.sequence.layer(layer_).recurrent);
    states.back()->Begin(shape_);
  }
  CatchUp(states, be);
  const std::vector<Tile> all = {{0, batch.rows(), ProductKind::kDecode}};
  Prepare(all, all, ws, be);
  Project(batch.hidden(), ProductKind::kDecode, ws, be);
  Gate(batch.rows(), 0, ProductKind::kDecode, ws, be);
  std::vector<RecurrenceRows> recur;
  for (size_t i = 0; i < states.size(); ++i) {
    const DecodeBatch::Part& part = batch.parts()[i];
    StepPart(*states[i], part.first, part.rows(), recur, ws, be);
    part.sequence.layer(layer_).step = StepCounts::OfRows(part.rows());
  }
  if (recurs()) be.Recur(recurrence_, own_.recurrence, recur);
  Finish(0, batch.hidden(), ProductKind::kDecode, ws, be);
}

namespace {

void Keep(const TensorView& from, Tensor& to) {
  to.Resize(DType::kF32, from.rows, from.cols);
  CopyRows(from, to.mutable_view());
}

}  // namespace

// Of a step of several tokens, the last ones may be taken back: their inputs are kept, and the state waits.
void RecurrentMixer::StepPart(RecurrentState& state, int64_t first, int64_t rows,
                              std::vector<RecurrenceRows>& recur, Workspace& ws, Backend& be) const {
  RecurrentSpace& space = ws.recurrent;
  const TensorView inputs = space.inputs.view().Rows(first, rows).Cols(0, shape_.channels);
  const MutableTensorView convolved = space.convolved.mutable_view().Rows(first, rows);
  be.Convolve(inputs, state.now.last.view(), own_.convolution, convolved);
  const bool waits = rows > 1;
  if (waits) {
    state.pending = rows;
    Keep(inputs, state.inputs);
    if (recurs()) Keep(convolved, state.convolved);
    if (recurs()) Keep(Steps(space, first, rows), state.steps);
  } else {
    ShiftRows(inputs, state.now.last.mutable_view());
  }
  if (!recurs()) return;
  recur.push_back(
      RowsOf(convolved, Steps(space, first, rows), state, space.outputs.mutable_view().Rows(first, rows)));
  recur.back().keeps_state = waits;
}

}  // namespace coppice
