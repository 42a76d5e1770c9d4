// The interface to a device's arithmetic: about twenty operations on matrices. It knows neither models nor
// pruning methods.
//
// Four rules hold for every implementation:
// - Activations are fp32. Weights have any type of tensor/dtype.h. Keys and values have cache_dtype().
// - Batch invariance: the choice of kernel and the order in which a product sums over K depend on the
//   operation, never on the number of rows. A kept row of a pruned run is therefore bit-equal to that row of
//   a dense run.
// - A view may be in host memory or in the backend's own memory() (TensorView::memory). An operation that
//   writes to host memory has finished when it returns. Lists (ids, rows, positions) are always host memory,
//   and an operation has read them when it returns.
// - Outputs never overlap inputs unless the comment says "in place". Shapes are checked; a mismatch throws
//   CheckFailure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/activation.h"
#include "kernels/recurrence.h"
#include "kernels/routing.h"
#include "kernels/sparse_pattern.h"
#include "tensor/device_memory.h"
#include "tensor/tensor.h"
#include "tensor/token_set.h"
#include "tensor/view.h"

namespace coppice {

// The attention parameters of a layer, the same for every call.
struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads; query head h reads kv head h / (heads / kv_heads)
  int head_dim = 0;
  float scale = 1;     // factor on q . k, usually 1 / sqrt(head_dim)
  int32_t window = 0;  // the query at p sees keys at positions > p - window; 0: no window
  std::span<const float> alibi_slopes = {};  // [heads] or empty; adds slope * (key position - query position)
  // [heads] or empty: e^sink joins the sum of a head's softmax, as a key without a value would, whose weight
  // is in no result (gpt-oss; transformers, modeling_gpt_oss.py, eager_attention_forward).
  std::span<const float> sinks = {};
  // Allows Attention and SparseAttention to round values and softmax weights to codes of 8 bits or more, with
  // one scale per key and one per query and tile of keys. docs/performance.md gives the divergence from fp32.
  bool int8_values = false;
  // With int8_values: the fewest bits, 8 or 16, of codes to which they may round rotated queries and keys,
  // with one scale per query and one per key. 0: no codes.
  int key_bits = 0;

  // The shape of a call on some neighbouring query heads, from `first` on, and the kv heads that they read.
  AttentionShape OfHeads(int first, int count, int count_kv) const {
    AttentionShape some = *this;
    some.heads = count;
    some.kv_heads = count_kv;
    const auto part = [&](std::span<const float> all) {
      return all.empty() ? all : all.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    };
    some.alibi_slopes = part(alibi_slopes);
    some.sinks = part(sinks);
    return some;
  }
};

// Keys and values in a layout that Attention prefers, kept so that several calls over the same rows, for some
// or all heads, prepare it once. The caller must call Begin when the rows change.
struct PackedCache {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  void Begin(int kv_heads, int64_t rows) {
    ready.assign(static_cast<size_t>(kv_heads), {});
    max_rows = rows;
  }
  std::vector<Range> ready;  // by kv head, in units of the backend's choice
  int64_t max_rows = 0;      // the largest number of rows of any call
  Tensor keys;               // layout private to the backend
  Tensor values;
};

// Queries over keys. Query i sees key j iff key_positions[j] <= query_positions[i] and the window permits it.
// Query positions ascend, key positions ascend strictly, and every query sees at least one key. All keys and
// values must be finite, even unseen ones: within a tile an unseen NaN can still reach a query (0 * NaN). A
// call may cover one kv head, {heads = group, kv_heads = 1}, on columns of wider matrices.
struct AttentionInput {
  AttentionShape shape;
  TensorView queries;                        // [m, heads * head_dim] fp32, after RoPE
  TensorView keys;                           // [n, kv_heads * head_dim] cache_dtype, after RoPE
  TensorView values;                         // [n, kv_heads * head_dim] cache_dtype
  std::span<const int32_t> query_positions;  // [m]
  std::span<const int32_t> key_positions;    // [n]
  PackedCache* packed = nullptr;             // shared with other calls, or null
  int first_kv_head = 0;                     // the first kv head of this call in `packed`
};

// How the softmax weights that several heads and queries give a key are combined.
enum class MassPool { kSum, kMaximum };

// How the keys of a unit are combined into one vector.
enum class KeyPool { kMean, kMax };

// cos and sin of position * frequency; row p is position p. The model computes frequencies and scaling.
struct RopeTable {
  TensorView cos;            // [positions, rotary_dims / 2] fp32
  TensorView sin;            // [positions, rotary_dims / 2] fp32
  bool interleaved = false;  // pairs (2i, 2i + 1), as in GGUF files of Llama; else (i, i + rotary_dims / 2)
};

// A weight [outputs, inputs] in the layout that Backend::Product reads. Filled by PackParts, Pack or
// PackGated; refilling one reuses its memory.
struct PackedMatrix {
  // Set by the caller when the packed weight is used for one small product only. The backend may then pack
  // panels on the fly, with the same results; the source weights must outlive that product.
  bool once = false;
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool gated = false;                         // two matrices of this shape: gate, then up
  Activation activation = Activation::kSilu;  // of the gate
  int form = 0;                               // which of the backend's layouts
  Tensor storage;                             // in that layout
  Tensor scales;                              // of integer codes; empty in other layouts
  std::vector<TensorView> sources;  // if the backend packs on the fly: the weights; `storage` is then unused
  std::vector<Tensor> copies;       // of those `sources` that the backend does not keep anyway
};

// The bytes that a run needs in a backend's memory().
struct RunBytes {
  int64_t weights = 0;      // that are not there yet, as PlacedBytes counts them
  int64_t keys_values = 0;  // of all layers
  int64_t workspace = 0;    // hidden states and tiles of activations
  int64_t total() const { return weights + keys_values + workspace; }
};

// What a tensor of a model is read as: a factor of products, a table of rows (Embed), or a norm or bias.
enum class WeightUse { kProduct, kTable, kVector };

struct PlacedWeight {
  Tensor storage;   // the copy; empty if there is none. It must outlive `view`.
  TensorView view;  // for operations
};

// What a model asks of operations that a backend may have in one form only.
struct OperationNeeds {
  int head_dim = 0;                           // of attention
  Activation activation = Activation::kSilu;  // of a gated FFN
  float embedding_scale = 1;                  // of Embed
  bool query_temperature = false;             // queries in host memory, scaled by their positions
  bool mixture = false;                       // Route and AddScaledRows
  bool sinks = false;                         // AttentionShape::sinks
  bool output_gate = false;                   // GateMul with Activation::kSigmoid
  bool recurrence = false;                    // Recur and Convolve
};

// What to do with a product: y = result, or y += result (a residual).
enum class ProductEnd { kStore, kAdd };

// One of several products of a decode step: y [m, outputs] = x [m, inputs] w^T + bias.
struct DecodeTask {
  TensorView x;
  TensorView w;     // as stored
  TensorView bias;  // [1, outputs] fp32 or empty
  MutableTensorView y;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "reference", "cpu", "gpu"
  // "scalar", "avx2", "avx512" or "amx"; of a gpu: "sm_90, NVIDIA H200, cuBLASLt 130100".
  virtual std::string_view isa() const = 0;
  virtual int threads() const = 0;
  virtual DType cache_dtype() const = 0;  // of keys and values

  // ---- Memory. The defaults are those of a backend that computes in host memory.
  // Where tensors should be that operations of this backend exchange; null: host memory. It lives as long as
  // the backend.
  virtual DeviceMemory* memory() const { return nullptr; }
  // Copies a stored tensor of a model to where, and in the layout in which, operations read it fastest. Only
  // operations can read the copy of a weight. The stored tensor itself if the backend reads that one.
  virtual PlacedWeight PlaceWeight(const TensorView& w, WeightUse /*use*/) { return {{}, w}; }
  // The bytes of memory() that PlaceWeight takes: 0 if the backend reads the stored tensor itself.
  virtual int64_t PlacedBytes(const TensorView& /*w*/, WeightUse /*use*/) const { return 0; }
  // Throws Error, with the reason, if some operation cannot do what a model needs.
  virtual void CheckNeeds(const OperationNeeds& /*needs*/) const {}
  // Throws Error, with the arithmetic, if this many more bytes do not fit into memory().
  virtual void CheckFits(const RunBytes& /*bytes*/) {}
  // Waits until every operation has finished.
  virtual void Finish() {}
  // The operations between the two are a decode step: much the same ones as those of the last step. A backend
  // may collect them and start them together.
  virtual void BeginStep() {}
  virtual void EndStep() {}

  // ---- Products: y [m, outputs] = x [m, inputs] w^T + bias. `bias` is [1, outputs] fp32 or empty.
  // For prefill: Pack dequantises and packs a weight, at most once per prompt, and every tile of rows reads
  // the result. Parts of one product, such as a layer's keys and values, are stacked: first the outputs of
  // the first part, then those of the next. Parts may differ in type.
  virtual void PackParts(std::span<const TensorView> parts, PackedMatrix& packed) = 0;
  void Pack(const TensorView& w, PackedMatrix& packed) { PackParts({&w, 1}, packed); }
  // The two halves of a gated FFN, of equal shape. Product then computes
  //   y = activation(x gate^T + bias, x up^T + bias)
  // where bias [1, 2 outputs] holds gate's and then up's.
  virtual void PackGated(const TensorView& gate, const TensorView& up, Activation activation,
                         PackedMatrix& packed) = 0;
  virtual void ProductInto(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
                           MutableTensorView y) = 0;
  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, MutableTensorView y) {
    ProductInto(x, w, bias, ProductEnd::kStore, y);
  }
  // For decode: few rows, directly from the stored (quantised) weight [outputs, inputs].
  virtual void DecodeProduct(const TensorView& x, const TensorView& w, const TensorView& bias,
                             MutableTensorView y) = 0;
  // Each is a DecodeProduct; together they may start the backend's threads less often. No task reads what
  // another writes.
  virtual void DecodeProducts(std::span<const DecodeTask> tasks);

  // ---- Rows
  // y[i] = scale * table[ids[i]], dequantised. table [vocab, d] of any type, y [ids.size(), d]; ids below
  // vocab.
  virtual void Embed(const TensorView& table, std::span<const int32_t> ids, float scale,
                     MutableTensorView y) = 0;
  // y = x / sqrt(mean(x^2) + eps) * weight, by row. x, y [m, d]; weight [1, d] fp32. y may be x. With
  // weight [1, c], where c divides d, every c columns of a row are normalised by themselves: heads.
  virtual void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) = 0;
  // y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, by row. y may be x.
  virtual void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                         MutableTensorView y) = 0;
  // In place: rotates the first rotary_dims of each head of row i by positions[i]. x [m, heads * head_dim].
  virtual void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions,
                    const RopeTable& table) = 0;
  // gate = activation(gate, up), in place in gate; both [m, i]. up may be gate.
  virtual void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) = 0;
  // x = gelu(x), in its tanh form, in place.
  virtual void Gelu(MutableTensorView x) = 0;
  // x *= factor, in place.
  virtual void Scale(MutableTensorView x, float factor);
  // y += x; both [m, d].
  virtual void Add(const TensorView& x, MutableTensorView y) = 0;
  // y[i] = x[rows[i]], of any type, the same for both. y may be x if rows ascend (then rows move only towards
  // the front).
  virtual void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) = 0;
  // y[rows[i]] += x[i], fp32; rows are distinct.
  virtual void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) = 0;
  // y[rows[i]] += scales[i] * x[i], fp32; rows are distinct. The product and the sum round separately.
  virtual void AddScaledRows(const TensorView& x, std::span<const int32_t> rows,
                             std::span<const float> scales, MutableTensorView y);
  // RouteRows of kernels/routing.h.
  virtual void Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to);
  // y = x converted to y's type: fp32, bf16, f16 or Q8_0 (d in whole blocks). x fp32; both [m, d].
  virtual void Convert(const TensorView& x, MutableTensorView y) = 0;
  // means[u] = the mean of rows [u block, (u + 1) block) of x, of any stored type; the last block may have
  // fewer. The sums are fp32, in the order of the rows. means [ceil(m / block), d] fp32 is in host memory. If
  // x is not, the host copies it, unless the backend has an operation of its own.
  virtual void MeanRows(const TensorView& x, int64_t block, MutableTensorView means);

  // ---- Layers with a state (kernels/recurrence.h), in host memory
  // Each of `sequences` by itself.
  virtual void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                     std::span<const RecurrenceRows> sequences);
  // y [m, channels] = the convolution of x [m, channels] behind the rows of `before` [taps - 1, channels].
  virtual void Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                        MutableTensorView y);

  // ---- Attention
  // out [m, heads * head_dim] = softmax(scale q k^T + bias) v. Never materialises all m x n scores.
  virtual void Attention(const AttentionInput& in, MutableTensorView out) = 0;
  // mass[j] = the sum, or the maximum, over all heads and all m queries, of
  //   weight[query] * softmax(...)[query, j]
  // mass [1, n] fp32. `query_weights` [m] are above 0; empty means all 1. The order of summation is fixed, so
  // the result does not depend on the number of threads.
  virtual void AttentionMass(const AttentionInput& in, std::span<const float> query_weights, MassPool pool,
                             MutableTensorView mass) = 0;
  // The softmax weights of few queries: weights [m * heads, n] fp32; row i * heads + h is head h of query i.
  // 0 for keys that the query does not see. Does not read in.values.
  virtual void AttentionWeights(const AttentionInput& in, MutableTensorView weights) = 0;
  // Attention in which head h of a query sees only the keys that `pattern` selects for the query's block,
  // within the causal rule (and the window). in.queries are the layer's rows [first_query, first_query + m);
  // in.keys are the first rows of the layer's cache. A row's result depends only on its own key set, never on
  // the other rows of the call.
  virtual void SparseAttention(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query,
                               MutableTensorView out) = 0;
  // Attention of a decode step: the function of Attention or, under a pattern, of SparseAttention with query
  // i as the layer's row i. It uses kernels for few queries, whose order of summation differs from
  // Attention's. An output depends only on its query and on the keys and values that its head sees, in their
  // order; not on other queries, heads or keys of the call.
  virtual void DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                               MutableTensorView out) = 0;
  // DecodeAttention for at least one cache; all have the same shape and type. out: the rows of all inputs, in
  // order.
  virtual void DecodeAttentions(std::span<const AttentionInput> inputs, MutableTensorView out);
  // DecodeAttention over some rows of the keys and values, ascending, with the bits of a cache that has only
  // these. in.key_positions are those of all rows.
  virtual void DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                                   MutableTensorView out);
  // unit_scores[u] = mean over heads h of q̄_h . k̄_u,g(h) (SlimInfer, eq. 1). q̄ is the mean of the m
  // queries; k̄_u pools the keys in rows [u * unit, (u + 1) * unit) to their mean or their channel-wise
  // maximum. No scale, softmax or bias applies. unit_scores [1, ceil(n / unit)] fp32.
  virtual void UnitScores(const AttentionInput& in, int unit, KeyPool pool,
                          MutableTensorView unit_scores) = 0;

  // ---- Selection, ranked by (score descending, row ascending); a NaN ranks last. scores [1, n] fp32.
  // The best `k` rows; all rows if k >= n.
  virtual TokenSet TopK(const TensorView& scores, int64_t k) = 0;
  // The smallest set of best rows whose sum reaches eta * (sum of all): FTP, eq. 2 and 3. The sums are fp64,
  // in rank order, and compared with >=. eta >= 1 returns all rows.
  virtual TokenSet SmallestSetWithMass(const TensorView& scores, double eta) = 0;
};

struct BackendOptions {
  int threads = 0;     // 0: all usable cores
  bool exact = false;  // cpu only: fp32 products and cache, even where bf16 is faster
  // cpu only: products of quantised weights in prefill with a scale per 256 values instead of 32. Faster, and
  // about as far from fp32 as llama.cpp (docs/performance.md). No effect on AMX. Not together with `exact`.
  bool fast = false;
  // The type of keys and values: BF16, Q8_0 or F32. Unset means F32 for `exact` and for "reference", which
  // support nothing else, and otherwise BF16.
  std::optional<DType> cache_type = {};
};

// name: "reference" (plain fp32 loops on one thread, the oracle for all others), "cpu" or "gpu". Throws Error
// for any other name, for a cache type that the backend does not support, and for "gpu" if there is no driver
// or device, or if the program was built without its kernels.
std::unique_ptr<Backend> MakeBackend(std::string_view name, const BackendOptions& options);

}  // namespace coppice
