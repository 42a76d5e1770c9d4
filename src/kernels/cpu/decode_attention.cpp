// Attention of a decode step. A unit is the work of one sequence of kernel calls: neighbouring kv heads of
// one query over the keys that it sees or, under a pattern, one query head over its list. The keys of a unit
// are cut into pieces at boundaries that do not depend on the threads. Threads take pieces, and the pieces of
// a head are merged in order.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/op_checks.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kUnitHeads = 32;       // query heads; their scores of a piece take 64 KiB
constexpr int64_t kPiecesPerThread = 4;  // so that a descheduled thread delays little work
constexpr int64_t kMergedHeads = 8;      // heads per merge task

struct Unit {
  DecodeHeads heads;
  int64_t begin = 0;  // keys [begin, end) of the unit's list
  int64_t end = 0;
  int64_t first_state = 0;  // index of the first state, in [piece][head] order
  float* out = nullptr;

  int64_t count() const { return int64_t{heads.kv_heads} * heads.group; }
  int64_t pieces() const { return (end - begin + kDecodeKeys - 1) / kDecodeKeys; }
};

// One piece, or one head, of a unit.
struct Part {
  size_t unit;
  int64_t index;
};

// kv heads per unit: all heads of a cache row, so that memory is read in order, unless that gives the threads
// too few pieces. Which heads share a unit does not change a bit of the result.
int HeadsPerUnit(const AttentionInput& in, int64_t keys, int threads) {
  const AttentionShape& s = in.shape;
  const int64_t pieces = in.queries.rows * ((keys + kDecodeKeys - 1) / kDecodeKeys);
  const int64_t for_threads = (kPiecesPerThread * threads + pieces - 1) / pieces;
  const int64_t for_scratch = (s.heads + kUnitHeads - 1) / kUnitHeads;
  return static_cast<int>(std::max<int64_t>(1, s.kv_heads / std::max(for_threads, for_scratch)));
}

class DecodeRun {
 public:
  DecodeRun(const AttentionInput& in, const SparsePattern& pattern, int threads, MutableTensorView out)
      : in_(in), out_(out), group_(in.shape.heads / in.shape.kv_heads) {
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const auto [begin, end] = VisibleRows(in, in.query_positions[static_cast<size_t>(i)]);
      if (pattern.empty()) {
        const int step = HeadsPerUnit(in, std::max<int64_t>(1, end - begin), threads);
        for (int g = 0; g < in.shape.kv_heads; g += step) {
          Add(i, g * group_, std::min(step, in.shape.kv_heads - g), group_, {begin, end});
        }
        continue;
      }
      for (int head = 0; head < in.shape.heads; ++head) {
        std::vector<int32_t> rows = KeysOf(pattern, head, i / pattern.query_block, end);
        rows.erase(rows.begin(), std::lower_bound(rows.begin(), rows.end(), begin));
        Add(i, head, 1, 1, {0, static_cast<int64_t>(rows.size())});
        units_.back().heads.rows = rows.data();
        lists_.push_back(std::move(rows));
      }
    }
  }

  std::span<const Unit> units() const { return units_; }
  std::span<const Part> pieces() const { return pieces_; }
  // Heads to merge after all pieces: those of units with several pieces, or none.
  std::span<const Part> heads() const { return heads_; }
  int64_t states() const { return states_; }
  int64_t ScratchFloats() const {
    int64_t most = 0;
    for (const Unit& unit : units_) {
      const DecodeHeads& h = unit.heads;
      most = std::max(most, DecodeScratchFloats(h.kv_heads, h.group, h.head_dim));
    }
    return most;
  }

 private:
  // Adds a unit: `kv_heads` kv heads, starting with the one that query head `head` reads, and `group` query
  // heads for each.
  void Add(int64_t query, int head, int kv_heads, int group, std::pair<int64_t, int64_t> keys) {
    const AttentionShape& s = in_.shape;
    const int64_t head_bytes = BytesOf(in_.keys.dtype, s.head_dim);
    const int64_t offset = head / group_ * head_bytes;
    Unit unit;
    unit.heads = {.queries = in_.queries.Row<float>(query).data() + int64_t{head} * s.head_dim,
                  .keys = in_.keys.data + offset,
                  .values = in_.values.data + offset,
                  .key_stride = in_.keys.stride,
                  .value_stride = in_.values.stride,
                  .head_bytes = head_bytes,
                  .cache_type = static_cast<int>(in_.keys.dtype),
                  .kv_heads = kv_heads,
                  .group = group,
                  .head_dim = s.head_dim,
                  .scale = s.scale,
                  .slopes = s.alibi_slopes.empty() ? nullptr : s.alibi_slopes.data() + head,
                  .position = in_.query_positions[static_cast<size_t>(query)],
                  .key_positions = in_.key_positions.data(),
                  .rows = nullptr};
    unit.begin = keys.first;
    unit.end = keys.second;
    unit.first_state = states_;
    unit.out = out_.Row<float>(query).data() + int64_t{head} * s.head_dim;
    for (int64_t p = 0; p < unit.pieces(); ++p) pieces_.push_back({units_.size(), p});
    for (int64_t h = 0; h < unit.count() && unit.pieces() != 1; ++h) heads_.push_back({units_.size(), h});
    states_ += unit.pieces() * unit.count();
    units_.push_back(unit);
  }

  const AttentionInput& in_;
  MutableTensorView out_;
  int group_;
  std::vector<Unit> units_;
  std::vector<Part> pieces_;
  std::vector<Part> heads_;
  std::vector<std::vector<int32_t>>
      lists_;  // the rows that units point to; moving a list does not move its rows
  int64_t states_ = 0;
};

}  // namespace

void AttentionOps::DecodeAttention(const AttentionInput& in, const SparsePattern& pattern,
                                   MutableTensorView out) {
  CheckSparseAttention(in, pattern, 0, out);
  if (in.queries.rows == 0) return;
  const DecodeRun run(in, pattern, pool_.size(), out);
  const DecodeKernels& kernels = HasBf16Kernels(in.keys.dtype) ? kernels_.decode_bf16 : kernels_.decode;
  const int64_t dim = in.shape.head_dim;
  const int64_t floats = DecodeStateFloats(dim);
  Grow(decode_states_, 1, run.states() * floats);
  Grow(scratch_, pool_.size(), run.ScratchFloats());
  float* states = decode_states_.mutable_view().Row<float>(0).data();
  const MutableTensorView scratch = scratch_.mutable_view();
  const auto finish = [&](const Unit& unit, int64_t head) {
    kernels.finish(states + (unit.first_state + head) * floats, unit.pieces(), unit.count() * floats, dim,
                   unit.out + head * dim);
  };
  pool_.For(static_cast<int64_t>(run.pieces().size()), 1, [&](int64_t task, int64_t, int thread) {
    const auto& [index, piece] = run.pieces()[static_cast<size_t>(task)];
    const Unit& unit = run.units()[index];
    const int64_t begin = unit.begin + piece * kDecodeKeys;
    kernels.attend(unit.heads, begin, std::min<int64_t>(begin + kDecodeKeys, unit.end),
                   states + (unit.first_state + piece * unit.count()) * floats,
                   scratch.Row<float>(thread).data());
    for (int64_t h = 0; h < unit.count() && unit.pieces() == 1; ++h) finish(unit, h);
  });
  pool_.For(static_cast<int64_t>(run.heads().size()), kMergedHeads, [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const auto& [index, head] = run.heads()[static_cast<size_t>(begin)];
      finish(run.units()[index], head);
    }
  });
}

}  // namespace coppice::cpu
