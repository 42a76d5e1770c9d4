// Attention of few queries over listed rows of a cache, for tokens that come back in a decode step. A task is
// a chunk of keys of one kv head: a thread copies and packs these keys into its own memory, where all tiles
// of queries read them. So the chosen keys pass through memory once, while copies and packed keys of a whole
// layer would be written and read again. The kernels and the order of merging are those of
// AttentionOps::Attention, so the bits are the same.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_plan.h"

namespace coppice::cpu {
namespace {

// The most tiles of queries per kv head. Each has a state for each chunk of keys, of 26 KiB with 64 channels.
constexpr int64_t kMostTiles = 8;

// A thread's copies of one head's keys and values.
struct ChunkMemory {
  ChunkMemory(const AttentionInput& in, bool packs, float* memory)
      : rows(packs ? kKeyTile : kKeyChunk), head_bytes(BytesOf(in.keys.dtype, in.shape.head_dim)) {
    keys = reinterpret_cast<std::byte*>(memory);
    values = keys + rows * head_bytes;
    packed_keys = values + rows * head_bytes;
    packed_values = packed_keys + kKeyChunk / kKeyTile * PackedTileBytes(in.shape.head_dim);
  }
  static int64_t Floats(const AttentionInput& in, bool packs) {
    const int64_t rows = packs ? kKeyTile : kKeyChunk;
    const int64_t packed = packs ? kKeyChunk / kKeyTile * PackedTileBytes(in.shape.head_dim) : 0;
    return (2 * (rows * BytesOf(in.keys.dtype, in.shape.head_dim) + packed) + 63) / 64 * 16;
  }

  int64_t rows;  // of the copies
  int64_t head_bytes;
  std::byte* keys;
  std::byte* values;
  std::byte* packed_keys;  // of a chunk
  std::byte* packed_values;
};

// Copies keys [begin, end) of the list. `from` is row 0 of the head.
void CopyRows(const AttentionInput& in, const std::byte* from, int64_t stride, int64_t begin, int64_t end,
              int64_t head_bytes, std::byte* to) {
  for (int64_t j = begin; j < end; ++j, to += head_bytes) {
    std::memcpy(to, from + in.rows[static_cast<size_t>(j)] * stride, static_cast<size_t>(head_bytes));
  }
}

// The tile of queries over copies of the keys from `begin` on. Kernels find key j of the list where it would
// be in a whole cache.
AttentionTile OverCopies(AttentionTile tile, const ChunkMemory& memory, int64_t begin) {
  tile.keys = memory.keys - begin * memory.head_bytes;
  tile.values = memory.values - begin * memory.head_bytes;
  tile.key_stride = tile.value_stride = memory.head_bytes;
  return tile;
}

}  // namespace

void AttentionOps::ListedAttention(const AttentionInput& in, MutableTensorView out) {
  const AttentionPlan plan(in, kernels_);
  if (plan.tiles() > kMostTiles) return Attention(CopyListed(in), out);
  const AttentionKernels& kernels = plan.kernels();
  const int64_t dim = in.shape.head_dim;
  const int64_t state_floats = AttentionStateFloats(dim);
  const int64_t chunks = (in.key_count() + kKeyChunk - 1) / kKeyChunk;
  Grow(scratch_, pool_.size(), AttentionScratchFloats(dim) + ChunkMemory::Floats(in, plan.Packs()));
  Grow(states_, in.shape.kv_heads * chunks * plan.tiles(), state_floats);
  const MutableTensorView scratch = scratch_.mutable_view();
  const MutableTensorView states = states_.mutable_view();
  pool_.For(in.shape.kv_heads * chunks, 1, [&](int64_t task, int64_t, int thread) {
    const int64_t kv_head = task / chunks;
    const int64_t begin = task % chunks * kKeyChunk;
    const int64_t end = plan.ChunkEnd(task % chunks);
    float* own = scratch.Row<float>(thread).data();
    const ChunkMemory memory(in, plan.Packs(), own + AttentionScratchFloats(dim));
    const AttentionTile cache = plan.Tile(kv_head, 0);
    const auto copy = [&](int64_t first, int64_t last) {
      CopyRows(in, cache.keys, cache.key_stride, first, last, memory.head_bytes, memory.keys);
      CopyRows(in, cache.values, cache.value_stride, first, last, memory.head_bytes, memory.values);
    };
    if (!plan.Packs()) copy(begin, end);
    for (int64_t j = begin; plan.Packs() && j < end; j += kKeyTile) {
      copy(j, std::min<int64_t>(j + kKeyTile, end));
      const int64_t at = (j - begin) / kKeyTile * PackedTileBytes(dim);
      kernels.pack(OverCopies(cache, memory, j), j, in.key_count(), memory.packed_keys + at,
                   memory.packed_values + at);
    }
    for (int64_t t = 0; t < plan.tiles(); ++t) {
      AttentionTile tile = OverCopies(plan.Tile(kv_head, t), memory, begin);
      if (task % chunks < plan.FirstChunk(tile) || task % chunks >= plan.LastChunk(tile)) continue;
      if (plan.Packs()) {
        const int64_t before = begin / kKeyTile * PackedTileBytes(dim);
        tile.packed_keys = memory.packed_keys - before;
        tile.packed_values = memory.packed_values - before;
      }
      kernels.attend(tile, begin, end, true, states.Row<float>(task * plan.tiles() + t).data(), own);
    }
  });
  pool_.For(in.shape.kv_heads * plan.tiles(), 1, [&](int64_t pair, int64_t, int thread) {
    const int64_t kv_head = pair / plan.tiles();
    const int64_t t = pair % plan.tiles();
    const AttentionTile tile = plan.Tile(kv_head, t);
    float* state = scratch.Row<float>(thread).data();
    kernels.clear(tile, true, state);
    for (int64_t c = plan.FirstChunk(tile); c < plan.LastChunk(tile); ++c) {
      kernels.merge(tile, true, states.Row<float>((kv_head * chunks + c) * plan.tiles() + t).data(), state);
    }
    kernels.finish(tile, state, reinterpret_cast<float*>(out.data) + kv_head * plan.group() * dim,
                   out.stride / 4);
  });
}

AttentionInput AttentionOps::CopyListed(AttentionInput in) {
  const int64_t bytes = BytesOf(in.keys.dtype, in.keys.cols);
  listed_keys_.Resize(in.keys.dtype, in.key_count(), in.keys.cols);
  listed_values_.Resize(in.keys.dtype, in.key_count(), in.keys.cols);
  const MutableTensorView keys = listed_keys_.mutable_view();
  const MutableTensorView values = listed_values_.mutable_view();
  pool_.For(in.key_count(), 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t row = in.rows[static_cast<size_t>(j)];
      std::memcpy(keys.RowBytes(j), in.keys.RowBytes(row), static_cast<size_t>(bytes));
      std::memcpy(values.RowBytes(j), in.values.RowBytes(row), static_cast<size_t>(bytes));
    }
  });
  in.keys = listed_keys_.view();
  in.values = listed_values_.view();
  in.rows = {};
  return in;
}

}  // namespace coppice::cpu
