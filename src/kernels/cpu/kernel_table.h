// The kernels of one instruction set as a table of function pointers, chosen once per backend.
//
// The files of one ISA include this header and intrinsics only: an inline function of a shared header,
// compiled there with AVX-512, could be the copy that the linker keeps for every CPU. So everything here is a
// plain struct or a declaration. Kernels work on one row or one tile; threads, shapes and memory are the
// callers' business.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice::cpu {

inline constexpr int kQ8Cache = 7;  // DType::kQ8_0 as a cache_type
inline constexpr int kDTypes = 13;  // of tensor/dtype.h; the arrays below are indexed by DType

// Rows of one tile of attention: query heads that share one kv head, at most kAttentionRows of them. Row r of
// the tile is row first_row + r of the list (query 0, head 0), (query 0, head 1), ..., with the `group` heads
// of the kv head. Where a row stands in its tile, and what its neighbours are, never changes its result.
struct AttentionTile {
  const float* queries;     // query 0, first head of the group
  int64_t query_stride;     // floats from one query to the next
  const std::byte* keys;    // key 0 of the kv head
  const std::byte* values;  // value 0 of the kv head
  int64_t key_stride;       // bytes
  int64_t value_stride;     // bytes
  int cache_type;           // DType of keys and values: F32, F16, BF16 or Q8_0
  int group;                // query heads per kv head
  int head_dim;
  float scale;
  const float* slopes;             // [group] ALiBi, or null
  const int32_t* query_positions;  // [queries]
  const int32_t* key_positions;    // [keys]
  const int32_t* visible_begin;    // [queries] query i sees keys [visible_begin[i], visible_end[i])
  const int32_t* visible_end;
  int64_t first_row;
  int rows;
  bool int8_values;  // AttentionShape's
  // Keys and values as AttentionKernels::pack leaves them, PackedTileBytes for each tile from key 0 on: what is read
  // then, instead of `keys` and `values`. Null: not packed.
  const std::byte* packed_keys;
  const std::byte* packed_values;
};

// Keys are visited in tiles of kKeyTile and in chunks of kKeyChunk, both counted from key 0: within a chunk
// the softmax is online, chunks are merged in order. Fixed boundaries make the result independent of how
// chunks are spread over threads.
inline constexpr int kKeyTile = 64;
inline constexpr int kKeyChunk = 2048;
inline constexpr int kAttentionRows = 96;

// Floats of a state: running maximum and sum per row, and the unnormalised output. Enough for every ISA.
constexpr int64_t AttentionStateFloats(int64_t head_dim) {
  return kAttentionRows * (2 + (head_dim + 31) / 32 * 32);
}
// Floats of scratch per thread: queries, one tile of keys, of values and of scores, the rows' limits, and
// room of the size of the scores for kernels that pack weights.
constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  const int64_t padded = (head_dim + 31) / 32 * 32;
  return (kAttentionRows + 2 * kKeyTile) * padded + (2 * kKeyTile + 8) * kAttentionRows;
}

// Bytes of one packed tile of keys, and at most of values.
constexpr int64_t PackedTileBytes(int64_t head_dim) { return kKeyTile * ((head_dim + 31) / 32 * 32) * 2; }

// Bytes that are used of a packed tile of values: in 8 bits, the codes and two floats per key.
constexpr int64_t PackedValueBytes(int64_t head_dim, bool int8_values) {
  return int8_values ? kKeyTile * ((head_dim + 31) / 32 * 32 + 8) : PackedTileBytes(head_dim);
}

struct AttentionKernels {
  // State of the tile's rows over keys [key_begin, key_end), at most one chunk, begun on a chunk's boundary.
  // Without `with_values` the state holds maximum and sum alone.
  void (*attend)(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                 float* state, float* scratch);
  // into = into merged with the state of a later chunk. A chunk that a row does not see leaves the row as it
  // was.
  void (*merge)(const AttentionTile& tile, bool with_values, const float* state, float* into);
  // The state before any key.
  void (*clear)(const AttentionTile& tile, bool with_values, float* state);
  // Writes the rows' normalised outputs. `out` is laid out as the queries are.
  void (*finish)(const AttentionTile& tile, const float* state, float* out, int64_t out_stride);
  // sums[j * 16 + lane] += softmax weights of key key_begin + j over the tile's rows, or becomes their maximum; lanes
  // are pooled by the caller. `state` holds the rows' final maximum and sum.
  void (*add_mass)(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state,
                   bool maximum, float* sums, float* scratch);
  // Rearranges the key tile that begins at `begin`; keys from `end` on do not exist. What all tiles of rows of a call
  // read is then rearranged once, not once for each. Without values in 8 bits packing changes no bit of a result. Null:
  // these kernels read the cache as it lies.
  void (*pack)(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys, std::byte* values);
  bool int8_values;  // take AttentionTile::int8_values, for packed tiles alone
};

inline constexpr int kMassLanes = 16;

// The heads of one query, for a decode step: `kv_heads` neighbours, each read by `group` query heads, over rows of a
// cache as they lie there.
struct DecodeHeads {
  const float* queries;     // [kv_heads * group][head_dim]
  const std::byte* keys;    // row 0 of the first kv head
  const std::byte* values;  // the same
  int64_t key_stride;       // bytes from row to row
  int64_t value_stride;     // bytes
  int64_t head_bytes;       // of one kv head in a row
  int cache_type;           // DType of keys and values: F32, F16, BF16 or Q8_0
  int kv_heads;
  int group;
  int head_dim;
  float scale;
  const float* slopes;           // [kv_heads * group] ALiBi, or null
  int32_t position;              // the query's
  const int32_t* key_positions;  // by row
  const int32_t* rows;           // key j lies in row rows[j]; null: in row j
};

// A decode step reads keys in pieces of kDecodeKeys, counted from the first one that the query sees, and within a
// piece in tiles of kDecodeTile. A piece has to repay its state, and there have to be several per thread.
inline constexpr int kDecodeKeys = 512;
inline constexpr int kDecodeTile = 16;

// Floats of one head's state over one piece: the unnormalised output, maximum and sum.
constexpr int64_t DecodeStateFloats(int64_t head_dim) { return (head_dim + 31) / 32 * 32 + 16; }
// Floats of scratch per thread for kv_heads * group heads: their scores, maxima, sums and queries, and a tile of
// rows. Kernels that take heads by four round the group up.
constexpr int64_t DecodeScratchFloats(int64_t kv_heads, int64_t group, int64_t head_dim) {
  const int64_t heads = kv_heads * ((group + 3) / 4 * 4);
  const int64_t padded = (head_dim + 31) / 32 * 32;
  return heads * (kDecodeKeys + 8 + padded) + kDecodeTile * padded;
}

struct DecodeKernels {
  // The states of all heads, one after the other, over keys [begin, end): one piece.
  void (*attend)(const DecodeHeads& heads, int64_t begin, int64_t end, float* states, float* scratch);
  // out [head_dim] = the normalised output of one head over all pieces, merged in order; their states lie `stride`
  // floats apart and are used up.
  void (*finish)(float* states, int64_t pieces, int64_t stride, int64_t head_dim, float* out);
};

// y[o] = row o of w . x + bias[o], one row of x [count], arranged
struct StreamTask {
  const std::byte* w;  // row 0
  int64_t w_stride;    // bytes
  int64_t rows;        // of w
  const float* x;
  int64_t count;
  const float* bias;  // of row 0, or null
  float* y;           // of row 0
};

struct KernelTable {
  // Stored values to fp32; `count` is whole blocks.
  void (*dequantize[kDTypes])(const std::byte* blocks, int64_t count, float* y);
  // y[i * y_stride] = w . x[i * x_stride ...] + bias for `rows` rows of x. The order of summation over
  // `count` depends on `count` alone.
  void (*dot[kDTypes])(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count,
                       float bias, float* y, int64_t y_stride);
  // Many rows of weights as fast as memory gives them, with sums in an order of their own that also depends on `count`
  // alone; null where `dot` is as good.
  void (*stream[kDTypes])(const StreamTask& task);
  // x in the order in which `stream` reads it; null where it reads x as it is.
  void (*arrange[kDTypes])(const float* x, int64_t count, float* y);

  void (*to_f16)(const float* x, int64_t count, uint16_t* y);
  void (*to_bf16)(const float* x, int64_t count, uint16_t* y);
  void (*to_q8_0)(const float* x, int64_t count, std::byte* blocks);  // whole blocks

  void (*rms_norm)(const float* x, const float* weight, int64_t count, float eps, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t count, float eps,
                     float* y);
  // One row of `heads` heads; `pairs` cosines and sines.
  void (*rope)(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t pairs,
               bool interleaved);
  void (*silu_mul)(float* gate, const float* up, int64_t count);
  void (*gelu)(float* x, int64_t count);
  void (*add)(const float* x, int64_t count, float* y);
  // x = softmax(x), in place; all 0 where every x is -infinity. The order of summation depends on `count`
  // alone.
  void (*softmax)(float* x, int64_t count);

  AttentionKernels attention;
  // With bf16 factors where AMX or vdpbf16ps multiplies them, for a cache of bf16 or Q8_0; else as `attention`.
  AttentionKernels attention_bf16;
  // Of a decode step, by the same rule.
  DecodeKernels decode;
  DecodeKernels decode_bf16;
};

const KernelTable& ScalarKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
const KernelTable& AmxKernels();

// For a bf16 cache, on CPUs with AVX512_BF16.
const AttentionKernels& Avx512Bf16Attention();
const DecodeKernels& Avx512Bf16Decode();

}  // namespace coppice::cpu
