// Attention under a pattern. For a block of queries and the heads that share its key list, this file runs the
// kernels of dense attention on the keys of the list. Kernels read lists of whole packed tiles in place. For
// other lists, keys and values are first copied side by side, one head wide.
//   keys(h, b) = columns_h + blocks_{h, b}     out_i = softmax(scale q_i k^T + bias)|keys(h, b), <= i  v
// Tiles and chunks are counted from the first key of the list, which depends only on the head and the block.
// A row therefore has the same bits in every call, and the bits of Attention if the list holds every key.
//
// O(pairs head_dim) time, and O(list head_dim) bytes copied per block and head, if at all, once for all rows
// of the block. Measured with AVX-512, 16k keys and blocks of 128: a pattern of density 0.2 takes 0.23 of the
// time of dense attention, and 0.16 if the heads of a kv head share lists. Memory per thread: the keys and
// values of one chunk, and kItemTiles + 1 states.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/op_checks.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kItemTiles = 4;  // tiles of rows that share one copy; each needs a state
constexpr int64_t kItemRows = kItemTiles * kAttentionRows;
constexpr int64_t kChunkTiles = kKeyChunk / kKeyTile;

// Query rows [first, first + count) of the call, all in one block, for the heads [head, head + group) of one
// kv head, which have the same keys in that block.
struct Item {
  int64_t block;
  int64_t first;
  int64_t count;
  int head;
  int group;
};

// The location of one chunk of a list.
struct Chunk {
  const std::byte* keys;
  const std::byte* values;
  int64_t key_stride;
  int64_t value_stride;
  const std::byte* packed_keys;
  const std::byte* packed_values;
  std::vector<int32_t> packed_order;  // AttentionTile::packed_order; empty: in order
};

// The visible range of a list, per query.
struct Limits {
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
};

// The limits relative to keys [first, first + count) of the list.
Limits Within(const Limits& of, int64_t first, int64_t count) {
  const auto shifted = [&](std::vector<int32_t> limits) {
    for (int32_t& l : limits) l = static_cast<int32_t>(std::clamp<int64_t>(l - first, 0, count));
    return limits;
  };
  return {shifted(of.begin), shifted(of.end)};
}

bool SameKeys(const SparsePattern& pattern, int a, int b, int64_t block) {
  const SparsePattern::Head& left = pattern.heads[static_cast<size_t>(a)];
  const SparsePattern::Head& right = pattern.heads[static_cast<size_t>(b)];
  if (left.key_blocks.empty() != right.key_blocks.empty()) return false;
  const auto at = static_cast<size_t>(block);
  return (left.key_blocks.empty() || left.key_blocks[at] == right.key_blocks[at]) &&
         left.columns == right.columns;
}

// Copies `width` bytes from `offset` on of each of `rows` of a cache, side by side. Whole blocks are runs of
// rows; in a cache that is one head wide, a run is one copy.
void CopyRows(const TensorView& cache, int64_t offset, int64_t width, std::span<const int32_t> rows,
              std::byte* to) {
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const auto count = static_cast<int64_t>(end - i);
    const std::byte* from = cache.RowBytes(rows[i]) + offset;
    if (cache.stride == width) {
      std::memcpy(to, from, static_cast<size_t>(count * width));
    } else {
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(to + r * width, from + r * cache.stride, static_cast<size_t>(width));
      }
    }
    to += count * width;
    i = end;
  }
}

class SparseRun {
 public:
  SparseRun(const AttentionInput& in, const SparsePattern& pattern, const KernelTable& kernels)
      : in_(in),
        pattern_(pattern),
        kernels_(KernelsFor(kernels, in.shape, in.keys.dtype)),
        width_(BytesOf(in.keys.dtype, in.shape.head_dim)),
        state_floats_(AttentionStateFloats(in.shape.head_dim)) {}

  int64_t ScratchFloats() const {
    return AttentionScratchFloats(in_.shape.head_dim) + (kItemTiles + 1) * state_floats_;
  }
  // The copied rows of a chunk, followed by the packed tiles.
  int64_t CopyFloats() const {
    return (2 * kKeyChunk * width_ + 2 * kChunkTiles * PackedTileBytes(in_.shape.head_dim) + 3) / 4;
  }

  // With `join`, heads of one kv head with the same keys share an item. This changes no bit of the result.
  std::vector<Item> Items(int64_t first_query, bool join) const {
    std::vector<Item> items;
    const int64_t last_block = (first_query + in_.queries.rows - 1) / pattern_.query_block;
    const int group = in_.shape.heads / in_.shape.kv_heads;
    // One kv head after another, so that its keys stay in the caches; last queries first, since they see the
    // most keys.
    for (int kv_end = group; kv_end <= in_.shape.heads; kv_end += group) {
      for (int64_t b = last_block; b >= first_query / pattern_.query_block; --b) {
        const int64_t begin = std::max<int64_t>(b * pattern_.query_block - first_query, 0);
        const int64_t end = std::min((b + 1) * pattern_.query_block - first_query, in_.queries.rows);
        for (int head = kv_end - group, next; head < kv_end; head = next) {
          next = head + 1;
          while (join && next < kv_end && next - head < kItemRows && SameKeys(pattern_, head, next, b))
            ++next;
          const int64_t rows = std::max<int64_t>(1, kItemRows / (next - head));
          for (int64_t i = begin; i < end; i += rows) {
            items.push_back({b, i, std::min(rows, end - i), head, next - head});
          }
        }
      }
    }
    return items;
  }

  // Whether some head's lists consist of whole key tiles only, which can come from the packed cache.
  bool TakesPackedTiles() const {
    return PacksKeys(in_.shape, kernels_) && pattern_.key_block % kKeyTile == 0 &&
           std::ranges::any_of(pattern_.heads, IsWholeBlocks);
  }
  // `plan` is the packed plan of the same call, or null.
  void UsePacked(const AttentionPlan* plan) { packed_ = plan; }

  void Run(const Item& item, MutableTensorView out, float* scratch, std::byte* copy) const {
    float* states = scratch + AttentionScratchFloats(in_.shape.head_dim);
    float* part = states + kItemTiles * state_floats_;
    // None of the queries sees later keys, and cutting those off moves no other key of the list.
    const std::vector<int32_t> list =
        KeysOf(pattern_, item.head, item.block, RowsUntil(in_.key_positions, Position(item, item.count - 1)));
    const std::vector<int32_t> positions = PositionsOf(item, list);
    const Limits visible = LimitsOf(item, positions);

    const int64_t tiles = (item.count * item.group + kAttentionRows - 1) / kAttentionRows;
    for (int64_t t = 0; t < tiles; ++t) kernels_.clear(TileOf(item, t), true, states + t * state_floats_);
    const auto keys = static_cast<int64_t>(list.size());
    bool ready = false;  // the queries are packed; those of several tiles take turns in the scratch
    for (int64_t begin = visible.begin.front() / kKeyChunk * kKeyChunk; begin < keys; begin += kKeyChunk) {
      const int64_t count = std::min<int64_t>(kKeyChunk, keys - begin);
      const Limits limits = Within(visible, begin, count);
      const Chunk chunk =
          ChunkOf(item, std::span(list).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                  limits, copy);
      for (int64_t t = 0; t < tiles; ++t) {
        AttentionTile tile = TileOf(item, t);
        tile.keys = chunk.keys;
        tile.values = chunk.values;
        tile.key_stride = chunk.key_stride;
        tile.value_stride = chunk.value_stride;
        tile.packed_keys = chunk.packed_keys;
        tile.packed_values = chunk.packed_values;
        tile.packed_order = chunk.packed_order.empty() ? nullptr : chunk.packed_order.data();
        tile.queries_ready = ready && tiles == 1;
        tile.key_positions = positions.data() + begin;
        tile.visible_begin = limits.begin.data();
        tile.visible_end = limits.end.data();
        kernels_.attend(tile, 0, count, true, part, scratch);
        kernels_.merge(tile, true, part, states + t * state_floats_);
      }
      ready = true;
    }
    float* first = out.Row<float>(item.first).data() + int64_t{item.head} * in_.shape.head_dim;
    for (int64_t t = 0; t < tiles; ++t) {
      const AttentionTile tile = TileOf(item, t);
      AddSinks(tile, kernels_, states + t * state_floats_);
      kernels_.finish(tile, states + t * state_floats_, first, out.stride / 4);
    }
  }

 private:
  static int64_t RowsUntil(std::span<const int32_t> positions, int32_t position) {
    return std::upper_bound(positions.begin(), positions.end(), position) - positions.begin();
  }
  int32_t Position(const Item& item, int64_t query) const {
    return in_.query_positions[static_cast<size_t>(item.first + query)];
  }

  std::vector<int32_t> PositionsOf(const Item& item, std::span<const int32_t> list) const {
    std::vector<int32_t> positions(list.size());
    const bool blocks = IsWholeBlocks(pattern_.heads[static_cast<size_t>(item.head)]);
    const size_t run = blocks ? static_cast<size_t>(pattern_.key_block) : 1;  // rows that follow each other
    for (size_t j = 0; j < list.size(); j += run) {
      const auto from =
          in_.key_positions.subspan(static_cast<size_t>(list[j]), std::min(run, list.size() - j));
      std::ranges::copy(from, positions.begin() + static_cast<std::ptrdiff_t>(j));
    }
    return positions;
  }

  Limits LimitsOf(const Item& item, std::span<const int32_t> positions) const {
    Limits limits;
    for (int64_t i = 0; i < item.count; ++i) {
      const int32_t p = Position(item, i);
      const int32_t window = in_.shape.window;
      limits.begin.push_back(static_cast<int32_t>(window > 0 ? RowsUntil(positions, p - window) : 0));
      limits.end.push_back(static_cast<int32_t>(RowsUntil(positions, p)));
    }
    return limits;
  }

  // The whole tile except for the keys.
  AttentionTile TileOf(const Item& item, int64_t tile) const {
    const AttentionShape& s = in_.shape;
    AttentionTile t = {};
    t.queries = in_.queries.Row<float>(item.first).data() + int64_t{item.head} * s.head_dim;
    t.query_stride = in_.queries.stride / 4;
    t.cache_type = static_cast<int>(in_.keys.dtype);
    t.group = item.group;
    t.head_dim = s.head_dim;
    t.scale = s.scale;
    t.slopes = s.alibi_slopes.empty() ? nullptr : s.alibi_slopes.data() + item.head;
    t.sinks = s.sinks.empty() ? nullptr : s.sinks.data() + item.head;
    t.query_positions = in_.query_positions.data() + item.first;
    t.first_row = tile * kAttentionRows;
    t.rows = static_cast<int>(std::min<int64_t>(kAttentionRows, item.count * item.group - t.first_row));
    t.int8_values = Int8Values(s, kernels_);
    t.key_bits = KeyBits(s, kernels_);
    return t;
  }

  static bool IsWholeBlocks(const SparsePattern::Head& head) {
    return head.columns.empty() && !head.key_blocks.empty();
  }
  int KvHead(const Item& item) const { return item.head / (in_.shape.heads / in_.shape.kv_heads); }

  // The chunk of keys `rows`; no query sees keys before limits.begin.front().
  Chunk ChunkOf(const Item& item, std::span<const int32_t> rows, const Limits& limits,
                std::byte* copy) const {
    if (packed_ != nullptr && IsWholeBlocks(pattern_.heads[static_cast<size_t>(item.head)])) {
      return PackedTiles(item, rows);
    }
    const int64_t first_visible = limits.begin.front();
    std::byte* packed = copy + 2 * kKeyChunk * width_;
    Chunk chunk = Gather(item, rows, first_visible, copy);
    const int64_t tiles = (item.count * item.group + kAttentionRows - 1) / kAttentionRows;
    if (PackingPays(in_.shape, kernels_, tiles)) {
      Pack(item, first_visible, static_cast<int64_t>(rows.size()), packed, &chunk);
    }
    return chunk;
  }

  // `rows` are whole tiles of the cache (the last may be partial), which the kernels read in place.
  Chunk PackedTiles(const Item& item, std::span<const int32_t> rows) const {
    const AttentionTile cache = packed_->Tile(KvHead(item), 0);
    Chunk chunk = {cache.keys,
                   cache.values,
                   cache.key_stride,
                   cache.value_stride,
                   cache.packed_keys,
                   cache.packed_values,
                   {}};
    for (size_t i = 0; i < rows.size(); i += kKeyTile)
      chunk.packed_order.push_back(rows[i] / static_cast<int32_t>(kKeyTile));
    return chunk;
  }

  // Packs the tiles of a chunk of `count` keys, starting with the tile of key `first_visible`.
  void Pack(const Item& item, int64_t first_visible, int64_t count, std::byte* to, Chunk* chunk) const {
    const int64_t tile_bytes = PackedTileBytes(in_.shape.head_dim);
    std::byte* values = to + kChunkTiles * tile_bytes;
    AttentionTile cache = TileOf(item, 0);
    cache.keys = chunk->keys;
    cache.values = chunk->values;
    cache.key_stride = chunk->key_stride;
    cache.value_stride = chunk->value_stride;
    for (int64_t t = std::min(first_visible, count) / kKeyTile; t * kKeyTile < count; ++t) {
      kernels_.pack(cache, t * kKeyTile, count, to + t * tile_bytes, values + t * tile_bytes);
    }
    chunk->packed_keys = to;
    chunk->packed_values = values;
  }

  // The keys and values of `rows`: in place if the rows are consecutive, else copied. Tiles before key
  // `first_visible` are not copied, because the kernels skip them.
  Chunk Gather(const Item& item, std::span<const int32_t> rows, int64_t first_visible,
               std::byte* copy) const {
    const int64_t offset = KvHead(item) * width_;
    const auto count = static_cast<int64_t>(rows.size());
    if (rows.back() - rows.front() == count - 1) {
      return {in_.keys.RowBytes(rows.front()) + offset,
              in_.values.RowBytes(rows.front()) + offset,
              in_.keys.stride,
              in_.values.stride,
              nullptr,
              nullptr,
              {}};
    }
    const int64_t skipped = std::min(first_visible, count) / kKeyTile * kKeyTile;
    const auto read = rows.subspan(static_cast<size_t>(skipped));
    std::byte* values = copy + kKeyChunk * width_;
    CopyRows(in_.keys, offset, width_, read, copy + skipped * width_);
    CopyRows(in_.values, offset, width_, read, values + skipped * width_);
    return {copy, values, width_, width_, nullptr, nullptr, {}};
  }

  const AttentionInput& in_;
  const SparsePattern& pattern_;
  const AttentionKernels& kernels_;
  const AttentionPlan* packed_ = nullptr;
  int64_t width_;  // bytes of one head's row
  int64_t state_floats_;
};

}  // namespace

void AttentionOps::SparseAttention(const AttentionInput& in, const SparsePattern& pattern,
                                   int64_t first_query, MutableTensorView out) {
  CheckSparseAttention(in, pattern, first_query, out);
  if (pattern.empty()) return Attention(in, out);
  if (in.queries.rows == 0) return;
  SparseRun run(in, pattern, kernels_);
  AttentionPlan plan(in, kernels_);
  if (run.TakesPackedTiles()) {
    plan.Pack(pool_, PackedOf(in));
    run.UsePacked(&plan);
  }
  // A short call has few items to distribute; then copying keys once per head costs less than an idle thread.
  std::vector<Item> items = run.Items(first_query, /*join=*/true);
  if (static_cast<int64_t>(items.size()) < 2 * pool_.size()) items = run.Items(first_query, /*join=*/false);
  Grow(scratch_, pool_.size(), run.ScratchFloats());
  Grow(copies_, pool_.size(), run.CopyFloats());
  const MutableTensorView scratch = scratch_.mutable_view();
  const MutableTensorView copies = copies_.mutable_view();
  pool_.For(static_cast<int64_t>(items.size()), 1, [&](int64_t i, int64_t, int thread) {
    run.Run(items[static_cast<size_t>(i)], out, scratch.Row<float>(thread).data(), copies.RowBytes(thread));
  });
}

}  // namespace coppice::cpu
