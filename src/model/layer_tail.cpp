// The layers of ModelShape::tail, which attend the keys and values of earlier layers. In prefill one row goes
// through them, the last one's, or all rows where their outputs are wanted. No policy acts: what it left in
// an earlier layer's cache is there to attend.
#include <vector>

#include "model/layer.h"

namespace coppice {

void Layer::Tail(Stream& x, const Pass& pass) const {
  Workspace& ws = pass.workspace;
  Backend& be = pass.backend;
  ws.Fit(shape());
  const int64_t single = x.prefill() && !x.last_row_only() ? 0 : x.rows();
  const std::vector<Tile> tiles = TilesOf(x.rows(), single, ws.tile_rows);
  const AttentionFrame frame = FrameOf(x, /*in_place=*/x.rows() == 1, pass);
  ws.query.Prepare(weights_.query, tiles, ws.kept, be);
  PrepareOutput(tiles, ws, be);
  ws.packed.Begin(attention_.kv_heads, frame.keys.rows);
  for (const Tile& tile : tiles) {
    pass.control.Pause();
    AttentionInput in = frame.Input(Queries(x, tile, pass), tile.begin);
    in.packed = &ws.packed;
    const MutableTensorView attended = ws.attended.mutable_view().Rows(0, tile.count);
    if (frame.rows.empty()) {
      Attend(frame, in, tile.kind, attended, pass.control, be);
    } else {
      be.DecodeAttentionOver(in, frame.rows, attended);
    }
    const MutableTensorView rows = x.hidden().Rows(tile.begin, tile.count);
    FinishAttention({rows, attended, tile.kind}, ProductEnd::kAdd, rows, ws, be);
  }
  AddFfn(tiles, x.hidden(), ws, pass.control, be);
  End(tiles, x.Tokens(), x.hidden(), ws, be);
}

void Layer::TailStep(DecodeBatch& batch) const {
  Workspace& ws = batch.workspace();
  Backend& be = batch.backend();
  ws.Fit(shape());
  const std::vector<Tile> all = {{0, batch.rows(), ProductKind::kDecode}};
  const MutableTensorView normed = ws.normed.mutable_view().Rows(0, batch.rows());
  const MutableTensorView q = ws.q.mutable_view().Rows(0, batch.rows());
  const MutableTensorView attended = ws.attended.mutable_view().Rows(0, batch.rows());
  ws.query.Prepare(weights_.query, all, ws.kept, be);
  PrepareOutput(all, ws, be);
  ApplyNorm(weights_.attention_norm, batch.hidden(), normed, be);
  ws.query(normed, ProductKind::kDecode, ProductEnd::kStore, q, be);
  std::vector<OwnAttention> attention;
  for (const DecodeBatch::Part& part : batch.parts()) {
    const MutableTensorView own = q.Rows(part.first, part.rows());
    FinishQueries(part.positions, part.sequence, own, be);
    attention.push_back(OwnOf(part, own));
  }
  AttendTogether(attention, attended, be);
  FinishAttention({batch.hidden(), attended, ProductKind::kDecode}, ProductEnd::kAdd, batch.hidden(), ws, be);
  AddFfn(all, batch.hidden(), ws, {}, be);
  End(all, batch.tokens(), batch.hidden(), ws, be);
}

}  // namespace coppice
