// The memory of one forward pass: tiles of activations and the packed weights of the layer at hand. Sized
// once per prompt, reused by every layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "model/weights.h"
#include "policies/shape.h"
#include "tensor/tensor.h"

namespace coppice {

// How a run is watched and stopped from outside. Both are looked at between tiles.
struct RunControl {
  std::function<void(double layers_done)> progress;  // in [0, layers], never falling; may be empty
  const std::atomic<bool>* cancelled = nullptr;      // may be null
};

// Which product kernel runs. It depends on the operation (many prompt rows, or one row), never on a row count
// (Backend, batch invariance).
enum class ProductKind { kPrefill, kDecode };

// A linear map ready to run: packed for prefill, as stored for decode.
class Projection {
 public:
  void Prepare(const Linear& w, ProductKind kind, Backend& be);
  // y [m, outputs] = x [m, inputs] w^T + bias
  void operator()(const TensorView& x, MutableTensorView y, Backend& be) const;

 private:
  const Linear* linear_ = nullptr;
  ProductKind kind_ = ProductKind::kPrefill;
  PackedMatrix packed_;
};

struct Workspace {
  Workspace(const ModelShape& shape, int64_t tile_rows);

  // Throws Cancelled where the run was cancelled; reports progress otherwise.
  void Tick(double layers_done) const;

  int64_t tile_rows;
  Tensor normed;    // [tile, d]
  Tensor q;         // [tile, heads * head_dim]
  Tensor k;         // [tile, kv_heads * head_dim]
  Tensor v;         // [tile, kv_heads * head_dim]
  Tensor attended;  // [tile, heads * head_dim]
  Tensor gate;      // [tile, ffn]
  Tensor up;        // [tile, ffn]
  Tensor out;       // [tile, d]
  Tensor gathered;  // [tile, d]: rows of the stream that run the FFN
  Tensor tail_q;    // [w, heads * head_dim]: queries of the last rows, where a policy observes
  Projection query, key, value, output, gate_up[2], down, head;
  RunControl control;
};

}  // namespace coppice
