// The memory of one forward pass: tiles of activations, and the packed weights of the current layer.
// Allocated once, and reused by every layer and by later prompts. Packed weights may also be kept for later
// prompts.
#pragma once

#include <array>
#include <atomic>
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

// Where the stored values of a projection's parts begin; the second is null if there is one part. Both count,
// because projections may share the first: keys with values, and keys alone (layer_probe.cpp).
using PartsKey = std::array<const std::byte*, 2>;

// At most `room` bytes of packed weights, which neither move nor are freed as long as this object lives,
// unless it is a StepWeights. So a pointer to one stays valid while other requests add more. Only bytes() is
// thread-safe.
class KeptWeights {
 public:
  explicit KeptWeights(int64_t room = 0) : room_(room) {}
  int64_t bytes() const { return bytes_; }
  // Null if these are not kept.
  const PackedMatrix* Find(const PartsKey& parts) const;
  // False if they are known not to fit.
  bool MayFit(const PartsKey& parts) const;
  // Takes `packed` over if there is room. Returns where it is from now on. `parts` must not be kept yet.
  const PackedMatrix* Keep(const PartsKey& parts, PackedMatrix& packed);
  // Keeps nothing more than it has.
  void Close() { room_ = bytes_; }

 protected:
  void SetRoom(int64_t bytes);

 private:
  struct Entry {
    PackedMatrix packed;
    int64_t bytes = 0;  // also after `packed` was freed
    bool kept = false;
  };
  std::map<PartsKey, Entry> entries_;
  int64_t room_;
  std::atomic<int64_t> bytes_ = 0;
};

// Packed weights that decode steps with returned tokens keep for the next steps. Packing takes longer than
// the products of a few rows: 13.4 ms of a step of 38 ms, with ten rows in each layer (SmolLM2, Q4_1, one
// thread).
class StepWeights : public KeptWeights {
 public:
  // Keeps at most `bytes` from now on, and frees the rest.
  using KeptWeights::SetRoom;
};

// Where a projection looks for its packed weight before it packs it, and then keeps it, if there is room.
struct WeightStores {
  KeptWeights* lasting = nullptr;  // for every later prompt of this model; null: none
  StepWeights steps;               // for decode steps only, where `lasting` does not have it
};

// A linear map, or several over the same input, ready to run: packed for the prefill kernels, as stored for
// the decode kernels.
class Projection {
 public:
  // Takes the packed weight from `kept`, or packs it and adds it to `kept` if it fits.
  void Prepare(const Linear& w, const std::vector<Tile>& tiles, WeightStores& kept, Backend& be) {
    Prepare({&w}, std::nullopt, tiles, kept, be);
  }
  // y = the outputs of `first`, then those of `second`, in one pass over x.
  void PrepareStacked(const Linear& first, const Linear& second, const std::vector<Tile>& tiles,
                      WeightStores& kept, Backend& be) {
    Prepare({&first, &second}, std::nullopt, tiles, kept, be);
  }
  // y = f(gate) * up
  void PrepareGated(const Linear& gate, const Linear& up, Activation f, const std::vector<Tile>& tiles,
                    WeightStores& kept, Backend& be) {
    Prepare({&gate, &up}, f, tiles, kept, be);
  }
  // y [m, outputs] = x [m, inputs] w^T + bias, or adds this to y.
  void operator()(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y, Backend& be);

 private:
  void Prepare(std::vector<const Linear*> parts, std::optional<Activation> gate,
               const std::vector<Tile>& tiles, WeightStores& kept, Backend& be);
  void Pack(const std::vector<Tile>& tiles, WeightStores& kept, Backend& be);
  void PackOwn(Backend& be);
  void Decode(const TensorView& x, ProductEnd end, MutableTensorView y, Backend& be);

  std::vector<const Linear*> parts_;
  std::optional<Activation> gate_;  // of the first part, which gates the second
  Tensor bias_;                     // of all parts, if there are several and any has one
  PackedMatrix own_;
  const PackedMatrix* packed_ = nullptr;  // own_, or kept
  Tensor stored_;                         // decode: the outputs before they are gated or added
};

// Of the layers with a mixture of experts, in host memory. Sized when such a layer runs.
struct MixtureSpace {
  Tensor gathered;           // [rows, d]: rows of the stream, where the mixture runs for some of them only
  int64_t experts_read = 0;  // since the caller set it to 0
  Tensor normed;             // [rows, d]
  Tensor sum;                // [rows, d]: what the experts add
  Tensor of_experts;         // [rows, d]: their sum, where the shared expert has a norm of its own
  Tensor logits;             // [rows, experts]
  // Decode, a row for each expert of each row, by expert:
  Tensor chosen;  // [rows * used, d]: of normed
  Tensor gate;    // [rows * used, width]
  Tensor up;      // [rows * used, width]
  Tensor out;     // [rows * used, d]
};

// Of the layers with an embedding of their own. Sized when such a layer runs.
struct EmbeddingSpace {
  explicit EmbeddingSpace(DeviceMemory* memory = nullptr) : own(memory), other(memory) {}
  Tensor own, other;  // [tile, p]
  Projection projection, gate, output;
};

// Of the layers with a state, in host memory. Sized when such a layer runs.
struct RecurrentSpace {
  // `mixed_width`: of the first product.
  void Fit(const RecurrentShape& shape, int64_t mixed_width, int64_t tile_rows);

  Tensor inputs;     // [tile, mixed_width]
  Tensor convolved;  // [tile, channels]
  Tensor gates;      // [tile, value_width]
  Tensor steps;      // [tile, value_heads, or twice as many]
  Tensor outputs;    // [tile, value_width]: of the recurrence
  Projection mixed, gate, step;
};

struct Workspace {
  // Has room for every layer of the shape. In host memory, or in `memory`, which must outlive the workspace.
  Workspace(const ModelShape& shape, int64_t tile_rows, DeviceMemory* memory = nullptr);

  // Gives q, kv, attended, gate and inner the widths of this layer. Their contents become undefined.
  void Fit(const LayerShape& layer);

  // The bytes of its tiles, and of the hidden states of a prompt of `tokens` tokens.
  static int64_t Bytes(const ModelShape& shape, int64_t tokens, int64_t tile_rows);

  int64_t tile_rows;
  Tensor normed;    // [tile, d]
  Tensor q;         // [tile, heads * head_dim]
  Tensor kv;        // [tile, 2 * kv_heads * head_dim]: keys, then values; or one of them
  Tensor attended;  // [tile, heads * head_dim]
  Tensor gate;      // [tile, heads * head_dim]: of attention's output; empty if no layer has one
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
  MixtureSpace mixture;
  EmbeddingSpace embedding;
  RecurrentSpace recurrent;
  PackedCache packed;  // of the layer whose attention runs
  WeightStores kept;
  Projection query, key_value, output_gate, output, gate_up, down, head;
};

}  // namespace coppice
