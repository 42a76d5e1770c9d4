#include "model/workspace.h"

#include <algorithm>

#include "base/error.h"

namespace coppice {

std::vector<Tile> TilesOf(int64_t rows, int64_t decode_rows, int64_t tile_rows) {
  std::vector<Tile> tiles;
  const auto add = [&](int64_t begin, int64_t end, ProductKind kind) {
    for (; begin < end; begin += tile_rows) tiles.push_back({begin, std::min(tile_rows, end - begin), kind});
  };
  add(0, rows - decode_rows, ProductKind::kPrefill);
  add(rows - decode_rows, rows, ProductKind::kDecode);
  return tiles;
}

void Projection::Prepare(const Linear& w, const std::vector<Tile>& tiles, Backend& be) {
  linear_ = &w;
  const bool prefill =
      std::any_of(tiles.begin(), tiles.end(), [](const Tile& t) { return t.kind == ProductKind::kPrefill; });
  if (prefill) be.Pack(w.weight, packed_);
}

void Projection::operator()(const TensorView& x, ProductKind kind, MutableTensorView y, Backend& be) const {
  if (kind == ProductKind::kPrefill) {
    be.Product(x, packed_, linear_->bias, y);
  } else {
    be.DecodeProduct(x, linear_->weight, linear_->bias, y);
  }
}

Workspace::Workspace(const ModelShape& s, int64_t rows)
    : tile_rows(rows),
      normed(DType::kF32, rows, s.hidden),
      q(DType::kF32, rows, static_cast<int64_t>(s.heads) * s.head_dim),
      k(DType::kF32, rows, static_cast<int64_t>(s.kv_heads) * s.head_dim),
      v(DType::kF32, rows, static_cast<int64_t>(s.kv_heads) * s.head_dim),
      attended(DType::kF32, rows, static_cast<int64_t>(s.heads) * s.head_dim),
      gate(DType::kF32, s.gated_ffn ? rows : 0, s.ffn),
      up(DType::kF32, rows, s.ffn),
      out(DType::kF32, rows, s.hidden),
      gathered(DType::kF32, rows, s.hidden) {}

void Workspace::Tick(double layers_done) const {
  if (control.cancelled != nullptr && control.cancelled->load(std::memory_order_relaxed)) throw Cancelled();
  if (control.progress) control.progress(layers_done);
}

}  // namespace coppice
