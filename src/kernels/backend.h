// The arithmetic of a device: about twenty operations over matrices, and nothing that knows a model or a
// method.
//
// Three rules hold for every implementation:
// - Activations are fp32. Weights come in any type of tensor/dtype.h. Keys and values are kept in
// cache_dtype().
// - Batch invariance: which kernel runs, and the order in which a product sums over K, depends on the
// operation and
//   never on the number of rows. A kept row of a pruned run is then bit-equal to the same row of a dense run.
// - Outputs never overlap inputs unless the comment says "in place". Shapes are checked; a mismatch is a
// CheckFailure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/sparse_pattern.h"
#include "tensor/tensor.h"
#include "tensor/token_set.h"
#include "tensor/view.h"

namespace coppice {

// How one layer attends; the same for every call of the layer.
struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads; query head h reads kv head h / (heads / kv_heads)
  int head_dim = 0;
  float scale = 1;     // of q . k, usually 1 / sqrt(head_dim)
  int32_t window = 0;  // query at p sees keys at positions > p - window; 0: no window
  std::span<const float> alibi_slopes =
      {};  // [heads], or empty: adds slope * (key position - query position)
  // Attention (and SparseAttention) may round values and softmax weights to 8 bits each, with a scale per key and one
  // per query and tile of keys. docs/performance.md has what it costs (divergence from fp32).
  bool int8_values = false;
};

// What Attention has rearranged of keys and values, so that several calls over the same rows, of some heads or all, do it
// once. Whoever calls says by Begin when the rows are others.
struct PackedCache {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  void Begin(int kv_heads, int64_t rows) {
    ready.assign(static_cast<size_t>(kv_heads), {});
    max_rows = rows;
  }
  std::vector<Range> ready;  // by kv head, in the backend's own units
  int64_t max_rows = 0;      // of any call
  Tensor keys;               // the backend's
  Tensor values;
};

// Queries over keys. Query i sees key j iff key_positions[j] <= query_positions[i] (and the window holds).
// Both position lists ascend strictly, and every query sees at least one key. Keys and values are finite,
// seen or not: a NaN that a query does not see may still reach it within a tile (0 * NaN).
// Heads may be called one kv head at a time, {heads = group, kv_heads = 1} on columns of wider matrices.
struct AttentionInput {
  AttentionShape shape;
  TensorView queries;                        // [m, heads * head_dim] fp32, after RoPE
  TensorView keys;                           // [n, kv_heads * head_dim] cache_dtype, after RoPE
  TensorView values;                         // [n, kv_heads * head_dim] cache_dtype
  std::span<const int32_t> query_positions;  // [m]
  std::span<const int32_t> key_positions;    // [n]
  PackedCache* packed = nullptr;             // shared with other calls, or null
  int first_kv_head = 0;                     // of `packed`
};

// What becomes of the softmax weights that several heads and queries give to a key.
enum class MassPool { kSum, kMaximum };

// How the keys of a unit become one vector.
enum class KeyPool { kMean, kMax };

// cos and sin of position * frequency: row p is position p. Frequencies and scaling are the model's business.
struct RopeTable {
  TensorView cos;            // [positions, rotary_dims / 2] fp32
  TensorView sin;            // [positions, rotary_dims / 2] fp32
  bool interleaved = false;  // pairs (2i, 2i + 1), as GGUF stores Llama; else (i, i + rotary_dims / 2)
};

// A weight [outputs, inputs] in the form in which Backend::Product reads it. Filled by Backend::Pack or PackGated;
// reusing one keeps its memory.
struct PackedMatrix {
  // Set by whoever has it filled: few rows follow, in one product. A backend may then pack a part at a time as it
  // multiplies, with the same results, and the weights must stay where they are until then.
  bool once = false;
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool gated = false;  // two matrices of this shape: gate and up
  int form = 0;        // which of the backend's own layouts
  Tensor storage;      // in that layout
  Tensor scales;       // of integer codes; empty in other layouts
  std::vector<TensorView>
      sources;  // with `once`, where the backend heeds it: the weights, and nothing is stored
};

// What becomes of a product: y = result, or y += result (a residual).
enum class ProductEnd { kStore, kAdd };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "reference", "cpu"
  virtual std::string_view isa() const = 0;   // "scalar", "avx2", "avx512", "amx"
  virtual int threads() const = 0;
  virtual DType cache_dtype() const = 0;  // of keys and values

  // ---- Products: y [m, outputs] = x [m, inputs] w^T + bias. `bias` is [1, outputs] fp32 or empty.
  // For prefill: the weight is packed (and dequantised) once per prompt, then read by every tile of rows.
  // Parts of one product, such as a layer's keys and values, are stacked: outputs of the first part, then those of the
  // next. They may differ in type.
  virtual void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) = 0;
  void Pack(const TensorView& w, PackedMatrix& packed) { PackParts({&w, 1}, packed); }
  // The two halves of a gated FFN, of one shape: Product yields y = silu(x gate^T + bias) * (x up^T + bias), with the
  // bias [1, 2 outputs] of both in that order.
  virtual void PackGated(const TensorView& gate, const TensorView& up, PackedMatrix& packed) = 0;
  virtual void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                           MutableTensorView y) = 0;
  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, MutableTensorView y) {
    ProductInto(x, w, bias, ProductEnd::kStore, y);
  }
  // For decode: few rows, straight from the stored (quantised) weight [outputs, inputs].
  virtual void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                             MutableTensorView y) = 0;

  // ---- Rows
  // y[i] = table[ids[i]], dequantised. table [vocab, d] of any type, y [ids.size(), d]; ids are in range.
  virtual void Embed(const TensorView& table, std::span<const int32_t> ids, MutableTensorView y) = 0;
  // y = x / sqrt(mean(x^2) + eps) * weight, by row. x, y [m, d]; weight [1, d] fp32. y may be x.
  virtual void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) = 0;
  // y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, by row. y may be x.
  virtual void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                         MutableTensorView y) = 0;
  // In place: rotates the first rotary_dims of each head of row i by positions[i]. x [m, heads * head_dim].
  virtual void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
                    const RopeTable& table) = 0;
  // gate = silu(gate) * up, in place in gate; both [m, i].
  virtual void SiluMul(MutableTensorView gate, const TensorView& up) = 0;
  // x = gelu(x), the tanh form that BLOOM uses, in place.
  virtual void Gelu(MutableTensorView x) = 0;
  // y += x; both [m, d].
  virtual void Add(const TensorView& x, MutableTensorView y) = 0;
  // y[i] = x[rows[i]]; any type, the same in both. y may be x where rows ascend (rows move down only).
  virtual void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) = 0;
  // y[rows[i]] += x[i], fp32; rows are distinct.
  virtual void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) = 0;
  // y = x in y's type; x fp32, y fp32, bf16, f16 or Q8_0 (d in whole blocks); both [m, d].
  virtual void Convert(const TensorView& x, MutableTensorView y) = 0;

  // ---- Attention
  // out [m, heads * head_dim] = softmax(scale q k^T + bias) v, never holding more than a tile of scores.
  virtual void Attention(const AttentionInput& in, MutableTensorView out) = 0;
  // mass[j] = the sum, or the maximum, over the heads and all m queries of weight[query] * softmax(...)[query, j];
  // mass [1, n] fp32. `query_weights` is [m], above 0, or empty for 1. The order of summation is fixed (heads within
  // queries), so the result does not depend on the number of threads.
  virtual void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                             MutableTensorView mass) = 0;
  // The softmax weights themselves, of few queries: weights [m * heads, n] fp32, row i * heads + h is head h
  // of query i; 0 for keys that the query does not see. in.values is not read.
  virtual void AttentionWeights(const AttentionInput& in, MutableTensorView weights) = 0;
  // Attention where head h of a query sees only the keys that `pattern` gives to its block, and of these the
  // ones that the causal rule (and the window) allows. in.queries are the layer's rows [first_query,
  // first_query + m); in.keys are the first rows of the layer's cache. A row's result depends on its own key
  // set alone, never on the other rows of the call.
  virtual void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                               MutableTensorView out) = 0;
  // Attention of a decode step: what Attention computes or, under a pattern, SparseAttention with query i of the
  // call as the layer's row i; by kernels for few queries, in a summation order of their own. An output depends on
  // its query and on the keys and values that its head sees, in their order, alone: not on other queries, heads or
  // keys of the call.
  virtual void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                               MutableTensorView out) = 0;
  // unit_scores[u] = mean over heads h of q̄_h . k̄_u,g(h): q̄ the mean of the m queries, k̄_u the keys in
  // rows [u * unit, (u + 1) * unit) pooled: their mean, or by channel their maximum. Raw products: no scale,
  // no softmax, no bias (SlimInfer, eq. 1). unit_scores [1, ceil(n / unit)].
  virtual void UnitScores(const AttentionInput& in, int unit, KeyPool pool,
                          MutableTensorView unit_scores) = 0;

  // ---- Selection, by (score descending, row ascending); a NaN ranks last. scores [1, n] fp32.
  // The best `k` rows (all where k >= n).
  virtual TokenSet TopK(const TensorView& scores, int64_t k) = 0;
  // The smallest set of best rows whose sum reaches eta * (sum of all): FTP, eq. 2 and 3. Sums in fp64, in
  // rank order, compared with >=; eta >= 1 is all.
  virtual TokenSet SmallestSetWithMass(const TensorView& scores, double eta) = 0;
};

struct BackendOptions {
  int threads = 0;     // 0: all usable cores
  bool exact = false;  // cpu: fp32 products and cache even where bf16 is faster
  // Of keys and values: BF16, Q8_0 or F32. Unset: BF16, or F32 where exact; with exact nothing else, and the
  // reference has F32 alone.
  std::optional<DType> cache_type = {};
};

// "reference" (plain fp32 loops on one thread, the oracle of every other) or "cpu". Throws Error for another
// name, and for a cache type that the backend does not keep.
std::unique_ptr<Backend> MakeBackend(std::string_view name, const BackendOptions& options);

}  // namespace coppice
