// A decode step of several sequences together, in which no policy acts. Products take the rows of all of
// them, so the weights come from memory once for all, and one operation attends for all. Positions and
// caches are each sequence's own. A row has the bits that Forward gives it, because a decode kernel's result
// does not depend on the rows of the call.
#include <vector>

#include "model/layer.h"

namespace coppice {

void Layer::Step(DecodeBatch& batch) const {
  Workspace& ws = batch.workspace();
  ws.Fit(shape());
  if (shape().attends()) {
    AttendStep(batch);
  } else if (recurrent_) {
    recurrent_->Step(batch);
  } else {
    for (const DecodeBatch::Part& part : batch.parts())
      part.sequence.layer(index_).step = StepCounts::OfRows(part.rows());
  }
  const std::vector<Tile> all = {{0, batch.rows(), ProductKind::kDecode}};
  AddFfn(all, batch.hidden(), ws, {}, batch.backend());
  End(all, batch.tokens(), batch.hidden(), ws, batch.backend());
}

void Layer::AttendStep(DecodeBatch& batch) const {
  Workspace& ws = batch.workspace();
  Backend& be = batch.backend();
  const int64_t rows = batch.rows();
  const std::vector<Tile> all = {{0, rows, ProductKind::kDecode}};
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, rows);
  const MutableTensorView kv = ws.kv.mutable_view().Rows(0, rows);
  const MutableTensorView q = ws.q.mutable_view().Rows(0, rows);
  const MutableTensorView attended = ws.attended.mutable_view().Rows(0, rows);

  ws.key_value.PrepareStacked(weights_.key, weights_.value, all, ws.kept, be);
  ws.query.Prepare(weights_.query, all, ws.kept, be);
  PrepareOutput(all, ws, be);
  ApplyNorm(weights_.attention_norm, batch.hidden(), normed, be);
  ws.key_value(normed, ProductKind::kDecode, ProductEnd::kStore, kv, be);
  ws.query(normed, ProductKind::kDecode, ProductEnd::kStore, q, be);
  std::vector<OwnAttention> attention;
  for (const DecodeBatch::Part& part : batch.parts()) {
    attention.push_back(
        StoreOwn(part, kv.Rows(part.first, part.rows()), q.Rows(part.first, part.rows()), be));
  }
  AttendTogether(attention, attended, be);
  FinishAttention({batch.hidden(), attended, ProductKind::kDecode}, ProductEnd::kAdd, batch.hidden(), ws, be);
}

void Layer::AddFfn(const std::vector<Tile>& tiles, MutableTensorView x, Workspace& ws,
                   const RunControl& control, Backend& be) const {
  if (!shape().has_ffn()) return;
  if (!has_mixture()) PrepareFfn(tiles, ws, control, be);
  for (const Tile& tile : tiles) {
    const MutableTensorView rows = x.Rows(tile.begin, tile.count);
    if (has_mixture()) {
      be.Add(Mixture(rows, tile.kind, ws, control, be), rows);
    } else {
      FfnTile(rows, tile.kind, ProductEnd::kAdd, rows, ws, be);
    }
  }
}

// Stores the part's keys and values, and returns what its queries attend to. FinishHeads changes kv and q in
// place.
OwnAttention Layer::StoreOwn(const DecodeBatch::Part& part, MutableTensorView kv, MutableTensorView q,
                             Backend& be) const {
  SequenceState& sequence = part.sequence;
  LayerState& layer = sequence.layer(index_);
  StoreRows(kv, part.positions, layer.cache.Add(part.positions), sequence, be);
  FinishQueries(part.positions, sequence, q, be);
  layer.step = StepCounts::OfRows(part.rows(), layer.cache.rows());
  return OwnOf(part, q);
}

OwnAttention Layer::OwnOf(const DecodeBatch::Part& part, const TensorView& queries) const {
  const LayerCache& cache = part.sequence.layer(keys_of()).cache;
  return {{attention_,
           part.sequence.RopeOf(shape().rope),
           cache.keys(),
           cache.values(),
           cache.position_lists(),
           part.positions,
           {}},
          queries};
}

}  // namespace coppice
