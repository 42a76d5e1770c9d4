// The memory of one forward pass: tiles of activations and the packed weights of the layer at hand. Sized
// once per prompt, reused by every layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/backend.h"
#include "model/weights.h"
#include "policies/shape.h"
#include "tensor/tensor.h"

namespace coppice {

// How a run is watched, held up and stopped from outside. All are looked at between tiles.
struct RunControl {
  std::function<void(double layers_done)> progress;  // in [0, layers], never falling; may be empty
  const std::atomic<bool>* cancelled = nullptr;      // may be null
  // May block, and let other sequences use the backend meanwhile: nothing of this one is in its memory between
  // two operations. May throw Cancelled. May be empty.
  std::function<void()> pause = {};
};

// Which product kernel runs. It depends on the operation, never on a row count (Backend, batch invariance):
// rows of the prompt take the prefill kernels, also when they come back while generating; the current token
// takes the decode kernels.
enum class ProductKind { kPrefill, kDecode };

// A range of rows of the stream that goes through a layer together.
struct Tile {
  int64_t begin = 0;
  int64_t count = 0;
  ProductKind kind = ProductKind::kPrefill;
};

// [0, rows) in tiles of at most `tile_rows`; the last `decode_rows` of them are tiles for the decode kernels.
std::vector<Tile> TilesOf(int64_t rows, int64_t decode_rows, int64_t tile_rows);

// A linear map, or several over the same input, ready to run: packed where rows take the prefill kernels, as stored for
// the others.
class Projection {
 public:
  void Prepare(const Linear& w, const std::vector<Tile>& tiles, Backend& be) {
    Prepare({&w}, false, tiles, be);
  }
  // y = outputs of the first, then those of the second: one pass over x.
  void PrepareStacked(const Linear& first, const Linear& second, const std::vector<Tile>& tiles,
                      Backend& be) {
    Prepare({&first, &second}, false, tiles, be);
  }
  // y = silu(gate) * up
  void PrepareGated(const Linear& gate, const Linear& up, const std::vector<Tile>& tiles, Backend& be) {
    Prepare({&gate, &up}, true, tiles, be);
  }
  // y [m, outputs] = x [m, inputs] w^T + bias, or y += that.
  void operator()(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y, Backend& be);

 private:
  void Prepare(std::vector<const Linear*> parts, bool gated, const std::vector<Tile>& tiles, Backend& be);
  void Decode(const TensorView& x, ProductEnd end, MutableTensorView y, Backend& be);

  std::vector<const Linear*> parts_;
  bool gated_ = false;
  Tensor bias_;  // of all parts, where there are several and any has one
  PackedMatrix packed_;
  Tensor stored_;  // decode: what is gated or added
};

struct Workspace {
  Workspace(const ModelShape& shape, int64_t tile_rows);

  // Lets others run first where that is wanted, and throws Cancelled where the run was cancelled. Whatever takes
  // longer than some tenths of a second calls it on its way.
  void Pause() const;
  // As Pause, and reports progress.
  void Tick(double layers_done) const;

  int64_t tile_rows;
  Tensor normed;    // [tile, d]
  Tensor q;         // [tile, heads * head_dim]
  Tensor kv;        // [tile, 2 * kv_heads * head_dim]: keys, then values
  Tensor attended;  // [tile, heads * head_dim]
  Tensor inner;     // [tile, ffn]: what the FFN's last product reads
  Tensor out;       // [tile, d]: of the FFN, where it runs for some rows
  Tensor gathered;  // [tile, d]: rows of the stream that run the FFN
  // Only where a policy asks for them:
  Tensor all_q;       // [rows, heads * head_dim]: every query of a layer, for the choice of a pattern
  Tensor tail_q;      // [w, heads * head_dim]: queries of the last rows
  Tensor question_q;  // [w, heads * head_dim]: queries of the question's rows
  Tensor sum_q;       // [group, heads * head_dim]: queries that still have to be added to a column sum
  Tensor some_keys;   // [attended, kv_heads * head_dim]: the rows of the cache that a decode step attends
  Tensor some_values;
  PackedCache packed;  // of the layer whose attention runs
  Projection query, key_value, output, gate_up, down, head;
  RunControl control;
};

}  // namespace coppice
