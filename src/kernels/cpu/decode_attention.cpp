// Attention of decode steps. A unit is the work of one sequence of kernel calls: neighbouring kv heads of
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

int64_t PiecesOf(int64_t keys) { return (keys + kDecodeKeys - 1) / kDecodeKeys; }

struct Unit {
  DecodeHeads heads;
  int64_t begin = 0;  // keys [begin, end) of the unit's list
  int64_t end = 0;
  const float* sinks = nullptr;  // [count()], or null
  int64_t first_state = 0;       // index of the first state, in [piece][head] order
  float* out = nullptr;

  int64_t count() const { return int64_t{heads.kv_heads} * heads.group; }
  int64_t pieces() const { return PiecesOf(end - begin); }
};

// One piece, or one head, of a unit.
struct Part {
  size_t unit;
  int64_t index;
};

// kv heads per unit: all heads of a cache row, so that memory is read in order, unless that gives the threads
// too few pieces. Which heads share a unit does not change a bit of the result.
int HeadsPerUnit(const AttentionShape& s, int64_t pieces, int threads) {
  const int64_t for_threads = (kPiecesPerThread * threads + pieces - 1) / pieces;
  const int64_t for_scratch = (s.heads + kUnitHeads - 1) / kUnitHeads;
  return static_cast<int>(std::max<int64_t>(1, s.kv_heads / std::max(for_threads, for_scratch)));
}

}  // namespace

class DecodeRun {
 public:
  DecodeRun(std::span<const AttentionInput> inputs, const SparsePattern& pattern, int threads,
            MutableTensorView out) {
    int64_t pieces = 0;
    for (const AttentionInput& in : inputs) {
      for (const int32_t position : in.query_positions) {
        const auto [begin, end] = VisibleRows(in, position);
        pieces += PiecesOf(std::max<int64_t>(1, end - begin));
      }
    }
    int64_t row = 0;
    for (const AttentionInput& in : inputs) {
      const int step = HeadsPerUnit(in.shape, pieces, threads);
      for (int64_t i = 0; i < in.queries.rows; ++i, ++row) {
        float* to = out.Row<float>(row).data();
        const auto keys = VisibleRows(in, in.query_positions[static_cast<size_t>(i)]);
        pattern.empty() ? AddQuery(in, i, step, keys, to) : AddQuery(in, i, pattern, keys, to);
      }
    }
  }

  // Over `rows` of one cache.
  DecodeRun(const AttentionInput& in, std::span<const int32_t> rows, int threads, MutableTensorView out) {
    std::vector<std::pair<int64_t, int64_t>> ranges;  // of `rows`, by query
    int64_t pieces = 0;
    for (const int32_t position : in.query_positions) {
      const auto [begin, end] = VisibleRows(in, position);
      const auto at = [&](int64_t row) {
        return std::lower_bound(rows.begin(), rows.end(), row) - rows.begin();
      };
      ranges.emplace_back(at(begin), at(end));
      pieces += PiecesOf(std::max<int64_t>(1, ranges.back().second - ranges.back().first));
    }
    const int step = HeadsPerUnit(in.shape, pieces, threads);
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const size_t first = units_.size();
      AddQuery(in, i, step, ranges[static_cast<size_t>(i)], out.Row<float>(i).data());
      for (size_t u = first; u < units_.size(); ++u) units_[u].heads.rows = rows.data();
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
  void AddQuery(const AttentionInput& in, int64_t query, int kv_heads_per_unit,
                std::pair<int64_t, int64_t> keys, float* out) {
    const int group = in.shape.heads / in.shape.kv_heads;
    for (int g = 0; g < in.shape.kv_heads; g += kv_heads_per_unit)
      Add(in, query, g * group, std::min(kv_heads_per_unit, in.shape.kv_heads - g), group, keys, out);
  }

  void AddQuery(const AttentionInput& in, int64_t query, const SparsePattern& pattern,
                std::pair<int64_t, int64_t> keys, float* out) {
    const auto [begin, end] = keys;
    for (int head = 0; head < in.shape.heads; ++head) {
      std::vector<int32_t> rows = KeysOf(pattern, head, query / pattern.query_block, end);
      rows.erase(rows.begin(), std::lower_bound(rows.begin(), rows.end(), begin));
      Add(in, query, head, 1, 1, {0, static_cast<int64_t>(rows.size())}, out);
      units_.back().heads.rows = rows.data();
      lists_.push_back(std::move(rows));
    }
  }

  // Adds a unit: `kv_heads` kv heads, starting with the one that query head `head` reads, and `group` query
  // heads for each. out: the query's row.
  void Add(const AttentionInput& in, int64_t query, int head, int kv_heads, int group,
           std::pair<int64_t, int64_t> keys, float* out) {
    const AttentionShape& s = in.shape;
    const int64_t head_bytes = BytesOf(in.keys.dtype, s.head_dim);
    const int64_t offset = head / (s.heads / s.kv_heads) * head_bytes;
    Unit unit;
    unit.heads = {.queries = in.queries.Row<float>(query).data() + int64_t{head} * s.head_dim,
                  .keys = in.keys.data + offset,
                  .values = in.values.data + offset,
                  .key_stride = in.keys.stride,
                  .value_stride = in.values.stride,
                  .head_bytes = head_bytes,
                  .cache_type = static_cast<int>(in.keys.dtype),
                  .kv_heads = kv_heads,
                  .group = group,
                  .head_dim = s.head_dim,
                  .scale = s.scale,
                  .slopes = s.alibi_slopes.empty() ? nullptr : s.alibi_slopes.data() + head,
                  .position = in.query_positions[static_cast<size_t>(query)],
                  .key_positions = in.key_positions.data(),
                  .rows = nullptr};
    unit.sinks = s.sinks.empty() ? nullptr : s.sinks.data() + head;
    unit.begin = keys.first;
    unit.end = keys.second;
    unit.first_state = states_;
    unit.out = out + int64_t{head} * s.head_dim;
    for (int64_t p = 0; p < unit.pieces(); ++p) pieces_.push_back({units_.size(), p});
    for (int64_t h = 0; h < unit.count() && unit.pieces() != 1; ++h) heads_.push_back({units_.size(), h});
    states_ += unit.pieces() * unit.count();
    units_.push_back(unit);
  }

  std::vector<Unit> units_;
  std::vector<Part> pieces_;
  std::vector<Part> heads_;
  std::vector<std::vector<int32_t>>
      lists_;  // the rows that units point to; moving a list does not move its rows
  int64_t states_ = 0;
};

void AttentionOps::DecodeAttention(std::span<const AttentionInput> inputs, const SparsePattern& pattern,
                                   MutableTensorView out) {
  COPPICE_CHECK(!inputs.empty() && (pattern.empty() || inputs.size() == 1));
  const DType type = inputs[0].keys.dtype;
  const int64_t dim = inputs[0].shape.head_dim;
  int64_t rows = 0;
  for (const AttentionInput& in : inputs) {
    COPPICE_CHECK(in.keys.dtype == type && in.shape.head_dim == dim);
    CheckSparseAttention(in, pattern, 0, out.Rows(rows, in.queries.rows));
    rows += in.queries.rows;
  }
  COPPICE_CHECK(rows == out.rows);
  if (rows == 0) return;
  Compute({inputs, pattern, pool_.size(), out}, type, dim);
}

void AttentionOps::DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                                       MutableTensorView out) {
  CheckAttention(in, out);
  CheckAscendingRows(rows, in.keys.rows);
  if (in.queries.rows > 0) Compute({in, rows, pool_.size(), out}, in.keys.dtype, in.shape.head_dim);
}

void AttentionOps::Compute(const DecodeRun& run, DType cache, int64_t dim) {
  const DecodeKernels& kernels = HasBf16Kernels(cache) ? kernels_.decode_bf16 : kernels_.decode;
  const int64_t floats = DecodeStateFloats(dim);
  Grow(decode_states_, 1, run.states() * floats);
  Grow(scratch_, pool_.size(), run.ScratchFloats());
  float* states = decode_states_.mutable_view().Row<float>(0).data();
  const MutableTensorView scratch = scratch_.mutable_view();
  const auto finish = [&](const Unit& unit, int64_t head) {
    kernels.finish(states + (unit.first_state + head) * floats, unit.pieces(), unit.count() * floats, dim,
                   unit.sinks == nullptr ? nullptr : unit.sinks + head, unit.out + head * dim);
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
