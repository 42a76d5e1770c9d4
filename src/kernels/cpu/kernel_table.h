// The kernels of one instruction set as a table of function pointers, chosen once per backend.
//
// The files of one ISA include only this header and intrinsics. If they shared an inline function of another
// header, the linker could keep the copy compiled with AVX-512 for every CPU. So this header holds only plain
// structs and declarations. Kernels work on one row or one tile; their callers handle threads, shapes and
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/iq_grids.h"
#include "kernels/activation.h"

namespace coppice::cpu {

inline constexpr int kQ8Cache = 7;  // DType::kQ8_0, as a cache_type
inline constexpr int kDTypes = 21;  // number of types in tensor/dtype.h; arrays below are indexed by DType

// A tile of attention: at most kAttentionRows query heads that share a kv head. Row r of the tile is row
// first_row + r of the list (query 0, head 0), (query 0, head 1), ..., over the `group` heads of the kv head.
// A row's result depends neither on its place in the tile nor on the other rows.
struct AttentionTile {
  const float* queries;     // query 0, the first head of the group
  int64_t query_stride;     // floats from one query to the next
  const std::byte* keys;    // key 0 of this kv head
  const std::byte* values;  // value 0 of this kv head
  int64_t key_stride;       // bytes
  int64_t value_stride;     // bytes
  int cache_type;           // DType of keys and values: F32, F16, BF16 or Q8_0
  int group;                // query heads per kv head
  int head_dim;
  float scale;
  const float* slopes;             // [group] ALiBi, or null
  const float* sinks;              // [group], or null
  const int32_t* query_positions;  // [queries]
  const int32_t* key_positions;    // [keys]
  const int32_t* visible_begin;    // [queries] query i sees keys [visible_begin[i], visible_end[i])
  const int32_t* visible_end;
  int64_t first_row;
  int rows;
  bool int8_values;  // AttentionShape::int8_values, if the kernels support it: packed values are codes
  int key_bits;      // of keys and queries as codes, if packed keys are; else 0. Needs int8_values
  // Keys and values as AttentionKernels::pack writes them, PackedTileBytes per tile, starting with the tile
  // of key 0. If set, kernels read them instead of `keys` and `values`. Null: not packed.
  const std::byte* packed_keys;
  const std::byte* packed_values;
  // Keys [j kKeyTile, (j + 1) kKeyTile) are in packed tile packed_order[j]; null: in tile j.
  const int32_t* packed_order;
  // The scratch is that of the last call, which had the same queries, so kernels need not pack them again.
  bool queries_ready;
};

// Keys are visited in tiles of kKeyTile and chunks of kKeyChunk, both counted from key 0. The softmax is
// online within a chunk, and chunks are merged in order. Fixed boundaries make the result independent of how
// chunks are divided among threads.
inline constexpr int kKeyTile = 64;
inline constexpr int kKeyChunk = 2048;
inline constexpr int kAttentionRows = 96;
// Ordered dithering of softmax weights that become codes: (bit-reversed j + 1/2) / 16 for key j % 16.
alignas(64) inline constexpr float kThresholds[16] = {
    0.03125f, 0.53125f, 0.28125f, 0.78125f, 0.15625f, 0.65625f, 0.40625f, 0.90625f,
    0.09375f, 0.59375f, 0.34375f, 0.84375f, 0.21875f, 0.71875f, 0.46875f, 0.96875f};
inline constexpr int kCodeDim = 256;  // the largest head_dim of keys and values as codes

// Floats of a state: the running maximum and sum per row, and the unnormalised output. Enough for every ISA.
constexpr int64_t AttentionStateFloats(int64_t head_dim) {
  return kAttentionRows * (2 + (head_dim + 31) / 32 * 32);
}
// Floats of scratch per thread: queries; one tile each of keys, values and scores; the rows' limits; and as
// many floats as the scores take for kernels that pack weights.
constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  const int64_t padded = (head_dim + 31) / 32 * 32;
  return (kAttentionRows + 2 * kKeyTile) * padded + (2 * kKeyTile + 8) * kAttentionRows;
}

// Bytes of a tile of keys or values whose codes have `code_bytes`: the codes, and two floats per key.
constexpr int64_t CodedTileBytes(int64_t head_dim, int code_bytes) {
  return kKeyTile * ((head_dim + 31) / 32 * 32 * code_bytes + 8);
}

// Bytes from one packed tile of keys or values to the next: the most that any form takes.
constexpr int64_t PackedTileBytes(int64_t head_dim) { return CodedTileBytes(head_dim, 2); }

// The offset of the packed tile of key `begin`, the first of its tile.
constexpr int64_t PackedTileOffset(const AttentionTile& tile, int64_t begin, int64_t head_dim) {
  const int64_t j = begin / kKeyTile;
  return (tile.packed_order == nullptr ? j : tile.packed_order[j]) * PackedTileBytes(head_dim);
}

struct AttentionKernels {
  // Computes the state of the tile's rows over keys [key_begin, key_end): at most one chunk, starting at a
  // chunk boundary. Without `with_values` the state holds only maximum and sum.
  void (*attend)(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                 float* state, float* scratch);
  // Merges the state of a later chunk into `into`. A row that sees no key of that chunk stays unchanged.
  void (*merge)(const AttentionTile& tile, bool with_values, const float* state, float* into);
  // Sets the state before any key.
  void (*clear)(const AttentionTile& tile, bool with_values, float* state);
  // Writes the rows' normalised outputs. `out` has the layout of the queries.
  void (*finish)(const AttentionTile& tile, const float* state, float* out, int64_t out_stride);
  // Pools the softmax weights of the tile's rows per key and lane: sums[j * kMassLanes + lane] is for key
  // key_begin + j and becomes the sum, or the `maximum`. The caller pools the lanes. `state` holds the rows'
  // final maximum and sum.
  void (*add_mass)(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state,
                   bool maximum, float* sums, float* scratch);
  // Packs the key tile at `begin`; keys from `end` on do not exist. A call then packs a tile once instead of
  // once per tile of rows. Packing changes no bit of a result, except into codes. Null: these kernels read
  // the cache directly.
  void (*pack)(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys, std::byte* values);
  int code_bytes;    // of the codes for AttentionTile::int8_values, in packed tiles only; 0: not supported
  int key_bits;      // the fewest of AttentionTile::key_bits, in packed tiles only; 0: not supported
  bool packs_pairs;  // `pack` has a form without codes
  // The sums of a state are those of the weights times this, where AttentionTile::int8_values is set.
  float code_unit = 1;
};

inline constexpr int kMassLanes = 16;

// The heads of one query in a decode step: `kv_heads` neighbouring kv heads, each read by `group` query
// heads, over cache rows in place.
struct DecodeHeads {
  const float* queries;     // [kv_heads * group][head_dim]
  const std::byte* keys;    // row 0 of the first kv head
  const std::byte* values;  // row 0 of the first kv head
  int64_t key_stride;       // bytes from one row to the next
  int64_t value_stride;     // likewise
  int64_t head_bytes;       // bytes of one kv head in a row
  int cache_type;           // DType of keys and values: F32, F16, BF16 or Q8_0
  int kv_heads;
  int group;
  int head_dim;
  float scale;
  const float* slopes;           // [kv_heads * group] ALiBi, or null
  int32_t position;              // the query's
  const int32_t* key_positions;  // by cache row
  const int32_t* rows;           // key j is in cache row rows[j]; null: in row j
};

// A decode step reads keys in pieces of kDecodeKeys, counted from the first key that the query sees, and each
// piece in tiles of kDecodeTile. A piece must repay its state, and every thread needs several pieces.
inline constexpr int kDecodeKeys = 512;
inline constexpr int kDecodeTile = 16;

// Floats of one head's state over one piece: unnormalised output, maximum and sum.
constexpr int64_t DecodeStateFloats(int64_t head_dim) { return (head_dim + 31) / 32 * 32 + 16; }
// Floats of scratch per thread for kv_heads * group heads: their scores, maxima, sums and queries, and a tile
// of rows. Some kernels take heads in fours, so the group is rounded up.
constexpr int64_t DecodeScratchFloats(int64_t kv_heads, int64_t group, int64_t head_dim) {
  const int64_t heads = kv_heads * ((group + 3) / 4 * 4);
  const int64_t padded = (head_dim + 31) / 32 * 32;
  return heads * (kDecodeKeys + 8 + padded) + kDecodeTile * padded;
}

struct DecodeKernels {
  // Writes the states of all heads over keys [begin, end), one piece.
  void (*attend)(const DecodeHeads& heads, int64_t begin, int64_t end, float* states, float* scratch);
  // out [head_dim] = the normalised output of one head over all pieces, merged in order. Their states are
  // `stride` floats apart; the call overwrites them. `sink`: the head's, or null.
  void (*finish)(float* states, int64_t pieces, int64_t stride, int64_t head_dim, const float* sink,
                 float* out);
};

// y[o] = row o of w . x + bias[o] for one row x [count], arranged.
struct StreamTask {
  const std::byte* w;  // row 0
  int64_t w_stride;    // bytes
  int64_t rows;        // of w
  const float* x;
  int64_t count;
  const float* bias;  // of row 0, or null
  float* y;           // of row 0
};

// The factors of a recurrence's rows (kernels/recurrence.h), from which its kernels make S and o.
struct RecurrenceGates {
  float* decay;     // [value_heads] e^r
  float* strength;  // [value_heads] sigmoid(beta) or t
};

// A block of the value columns of one head, over rows of a sequence. Row i of x is at x + i * x_stride; all
// strides are in floats.
struct RecurrenceBlock {
  const float* q;  // [rows][key_dim] of the key head
  const float* k;
  int64_t q_stride;
  int64_t k_stride;
  const float* v;  // [rows][columns]
  int64_t v_stride;
  float* out;  // [rows][columns]
  int64_t out_stride;
  // Of a row: e^r, the strength of d, and the factors that give k and q their lengths (gated delta rule).
  const float* decay;
  const float* strength;
  const float* key_factor;
  const float* query_factor;
  int64_t factor_stride;
  float* state;  // [key_dim][columns]
  int64_t state_stride;
  float skip;
  int64_t rows;
  int64_t key_dim;
  int64_t columns;
  bool keeps_state;
};

// Columns of a block: with 128 keys it takes half of an L1 cache of 32 KiB.
inline constexpr int kStateColumns = 32;

// One row of a convolution: y[c] = f(sum_t weight[t][c] x[t][c] + bias[c]).
struct ConvolutionRow {
  const float* const* x;  // [taps] rows, the earliest first
  const float* weight;    // [taps][channels]
  int64_t weight_stride;  // floats
  int64_t taps;
  const float* bias;  // [channels] or null
  int64_t channels;
  bool silu;
  float* y;
};

struct RecurrenceKernels {
  // The gates of a row of heads. `beta` is null under Mamba-2's rule, whose strength is the step.
  void (*gates)(const float* step, const float* beta, const float* rate, const float* bias, int64_t heads,
                RecurrenceGates to);
  // factors[g] = scale / sqrt(sum x^2 + 1e-6) over head g of a row x of heads.
  void (*lengths)(const float* x, int64_t heads, int64_t dim, float scale, float* factors);
  // All rows of a block. `scratch` holds key_dim * kStateColumns floats, 64-byte aligned.
  void (*gated_delta)(const RecurrenceBlock& block, float* scratch);
  void (*mamba2)(const RecurrenceBlock& block, float* scratch);  // without key_factor and query_factor
  void (*convolve)(const ConvolutionRow& row);
};

struct KernelTable {
  // Stored values to fp32; `count` is a multiple of the block size.
  void (*dequantize[kDTypes])(const std::byte* blocks, int64_t count, float* y);
  // y[i * y_stride] = the difference of neighbouring codes' values, in group i of 32 of `count` stored
  // values. Null for types in which 32 values have no common one.
  void (*steps[kDTypes])(const std::byte* blocks, int64_t count, float* y, int64_t y_stride);
  // y[i * y_stride] = w . x[i * x_stride ...] + bias for `rows` rows of x. The order of summation depends
  // only on `count`.
  void (*dot[kDTypes])(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count,
                       float bias, float* y, int64_t y_stride);
  // Products with many rows of weights, at the rate of memory. The order of summation differs from `dot`'s
  // and also depends only on `count`. Null where `dot` is as fast.
  void (*stream[kDTypes])(const StreamTask& task);
  // Arranges x in the order in which `stream` reads it. Null if `stream` reads x as it is.
  void (*arrange[kDTypes])(const float* x, int64_t count, float* y);

  void (*to_f16)(const float* x, int64_t count, uint16_t* y);
  void (*to_bf16)(const float* x, int64_t count, uint16_t* y);
  void (*to_q8_0)(const float* x, int64_t count, std::byte* blocks);  // `count` is a multiple of 32

  void (*rms_norm)(const float* x, const float* weight, int64_t count, float eps, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t count, float eps,
                     float* y);
  // One row of `heads` heads; cos and sin have `pairs` values.
  void (*rope)(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t pairs,
               bool interleaved);
  void (*gate_mul[kActivations])(float* gate, const float* up, int64_t count);
  void (*gelu)(float* x, int64_t count);
  void (*add)(const float* x, int64_t count, float* y);
  // x = softmax(x) in place; all 0 if every x is -infinity. The order of summation depends only on `count`.
  void (*softmax)(float* x, int64_t count);

  RecurrenceKernels recurrence;
  AttentionKernels attention;
  // For a bf16 or Q8_0 cache: with bf16 factors if AMX or vdpbf16ps multiplies them faster than fp32, else
  // the same as `attention`.
  AttentionKernels attention_bf16;
  // For such a cache where the shape allows keys and values as codes.
  AttentionKernels attention_int8;
  // For a decode step: decode_bf16 for a bf16 or Q8_0 cache. It has bf16 factors of scores where there is
  // vdpbf16ps, else it is the same as `decode`.
  DecodeKernels decode;
  DecodeKernels decode_bf16;
};

const KernelTable& ScalarKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
const KernelTable& AmxKernels();

// For a bf16 or Q8_0 cache: codes of 16 bits, where the shape allows codes.
const AttentionKernels& Avx2CodeAttention();
// For a bf16 or Q8_0 cache, on CPUs with VNNI. Packed keys and values as codes need no more; all else needs
// AVX512_BF16.
const AttentionKernels& Avx512Bf16Attention();
// For a bf16 or Q8_0 cache, on CPUs with AVX512_BF16.
const DecodeKernels& Avx512Bf16Decode();

}  // namespace coppice::cpu
