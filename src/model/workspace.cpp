#include "model/workspace.h"

#include "base/error.h"

namespace coppice {

void Projection::Prepare(const Linear& w, ProductKind kind, Backend& be) {
  linear_ = &w;
  kind_ = kind;
  if (kind == ProductKind::kPrefill) be.Pack(w.weight, packed_);
}

void Projection::operator()(const TensorView& x, MutableTensorView y, Backend& be) const {
  if (kind_ == ProductKind::kPrefill) {
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
