// The memory of one forward pass: tiles of activations, and the packed weights of the current layer.
// Allocated once, and reused by every layer and by later prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "formats/model_shape.h"
#include "kernels/backend.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace coppice {

// Which product kernel runs. It depends on the operation, never on the number of rows (see Backend on batch
// invariance): rows of the prompt use the prefill kernels, also when they return in decode, and the current
// token uses the decode kernels.
enum class ProductKind { kPrefill, kDecode };

// A range of rows of the stream that goes through a layer together.
struct Tile {
  int64_t begin = 0;
  int64_t count = 0;
  ProductKind kind = ProductKind::kPrefill;
};

// Cuts [0, rows) into tiles of at most `tile_rows`. The last `decode_rows` rows form tiles for the decode
// kernels.
std::vector<Tile> TilesOf(int64_t rows, int64_t decode_rows, int64_t tile_rows);

// Packed weights that decode steps with returned tokens keep for the next steps. Packing takes longer than
// the products of a few rows: 13.4 ms of a step of 38 ms, with ten rows in each layer (SmolLM2, Q4_1, one
// thread).
class KeptWeights {
 public:
  // Keeps at most `bytes` from now on, and frees the rest.
  void SetRoom(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  // Null if the weight whose stored values begin at `weight` is not kept.
  const PackedMatrix* Find(const std::byte* weight) const;
  // False if the weight is known not to fit.
  bool MayFit(const std::byte* weight) const;
  // Takes `packed` over if there is room. Returns where it is from now on.
  const PackedMatrix* Keep(const std::byte* weight, PackedMatrix& packed);

 private:
  struct Entry {
    PackedMatrix packed;
    int64_t bytes = 0;  // also after `packed` was freed
    bool kept = false;
  };
  std::map<const std::byte*, Entry> entries_;
  int64_t room_ = 0;
  int64_t bytes_ = 0;
};

// A linear map, or several over the same input, ready to run: packed for the prefill kernels, as stored for
// the decode kernels.
class Projection {
 public:
  // In a decode step, takes the packed weight from `kept`, or packs it and adds it to `kept` if it fits.
  void Prepare(const Linear& w, const std::vector<Tile>& tiles, KeptWeights& kept, Backend& be) {
    Prepare({&w}, std::nullopt, tiles, kept, be);
  }
  // y = the outputs of `first`, then those of `second`, in one pass over x.
  void PrepareStacked(const Linear& first, const Linear& second, const std::vector<Tile>& tiles,
                      KeptWeights& kept, Backend& be) {
    Prepare({&first, &second}, std::nullopt, tiles, kept, be);
  }
  // y = f(gate) * up
  void PrepareGated(const Linear& gate, const Linear& up, Activation f, const std::vector<Tile>& tiles,
                    KeptWeights& kept, Backend& be) {
    Prepare({&gate, &up}, f, tiles, kept, be);
  }
  // y [m, outputs] = x [m, inputs] w^T + bias, or adds this to y.
  void operator()(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y, Backend& be);

 private:
  void Prepare(std::vector<const Linear*> parts, std::optional<Activation> gate,
               const std::vector<Tile>& tiles, KeptWeights& kept, Backend& be);
  void Pack(const std::vector<Tile>& tiles, KeptWeights& kept, Backend& be);
  void Decode(const TensorView& x, ProductEnd end, MutableTensorView y, Backend& be);

  std::vector<const Linear*> parts_;
  std::optional<Activation> gate_;  // of the first part, which gates the second
  Tensor bias_;                     // of all parts, if there are several and any has one
  PackedMatrix own_;
  const PackedMatrix* packed_ = nullptr;  // own_, or kept
  Tensor stored_;                         // decode: the outputs before they are gated or added
};

struct Workspace {
  // In host memory, or in `memory`, which must outlive the workspace.
  Workspace(const ModelShape& shape, int64_t tile_rows, DeviceMemory* memory = nullptr);

  // The bytes of its tiles, and of the hidden states of a prompt of `tokens` tokens.
  static int64_t Bytes(const ModelShape& shape, int64_t tokens, int64_t tile_rows);

  int64_t tile_rows;
  Tensor normed;    // [tile, d]
  Tensor q;         // [tile, heads * head_dim]
  Tensor kv;        // [tile, 2 * kv_heads * head_dim]: keys, then values; or one of them
  Tensor attended;  // [tile, heads * head_dim]
  Tensor inner;     // [tile, ffn]: the input of the FFN's last product
  Tensor out;       // [tile, d]: the output of attention or FFN, when it runs for some rows only
  Tensor gathered;  // [tile, d]: those rows of the stream
  // Used only if the policy asks for them:
  Tensor all_q;       // [rows, heads * head_dim]: every query of a layer, for the choice of a pattern
  Tensor tail_q;      // [w, heads * head_dim]: queries of the last rows
  Tensor question_q;  // [w, heads * head_dim]: queries of the question's rows
  Tensor sum_q;       // [group, heads * head_dim]: queries not yet added to a column sum
  Tensor some_keys;   // [attended, kv_heads * head_dim]: the rows of the cache that a decode step attends
  Tensor some_values;
  PackedCache packed;  // of the layer whose attention runs
  KeptWeights kept;
  Projection query, key_value, output, gate_up, down, head;
};

}  // namespace coppice
