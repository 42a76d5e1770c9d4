// Rows are (query, head of a kv head's group) pairs, cut into tiles of kAttentionRows; keys are cut into
// chunks. One kernel call computes the state of a tile over a chunk. Chunks are merged in order, so any
// thread may compute any of them. O(m n heads head_dim) time; the memory per thread is one tile's,
// independent of n.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/op_checks.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kWeightKeys = 64;    // keys widened at a time: 32 KiB for head_dim 128
constexpr int64_t kWeightQueries = 4;  // queries per pass of the dot kernels
// Keys per task of the second pass: enough to repay packing the queries again.
constexpr int64_t kMassKeys = 1024;

// Computes the states of (kv head, tile) pairs.
struct StateRun {
  const AttentionPlan& plan;
  const ThreadPool& pool;
  int64_t kv_heads;
  int64_t keys;
  bool with_values;
  int64_t state_floats;

  AttentionTile TileOf(int64_t pair) const { return plan.Tile(pair / plan.tiles(), pair % plan.tiles()); }
  int64_t pairs() const { return kv_heads * plan.tiles(); }

  // All chunks of one pair into `state`; `part` is scratch for the state of one chunk.
  void Sequential(AttentionTile tile, float* state, float* part, float* scratch) const {
    const AttentionKernels& k = plan.kernels();
    k.clear(tile, with_values, state);
    for (int64_t c = plan.FirstChunk(tile); c < plan.LastChunk(tile); ++c) {
      k.attend(tile, c * kKeyChunk, plan.ChunkEnd(c), with_values, part, scratch);
      k.merge(tile, with_values, part, state);
      tile.queries_ready = true;
    }
  }
};

// A maximum does not commute with the product, so the keys of a unit are pooled first.
void ScoreUnitMaxima(const KernelTable& kernels, const ThreadPool& pool, const TensorView& keys, int unit,
                     std::span<const float> query, std::span<float> scores) {
  const auto dequantize = kernels.dequantize[static_cast<size_t>(keys.dtype)];
  const auto dot = kernels.dot[static_cast<size_t>(DType::kF32)];
  const auto units = static_cast<int64_t>(scores.size());
  pool.For(units, std::max<int64_t>(1, 256 / unit), [&](int64_t begin, int64_t end, int) {
    std::vector<float> key(query.size());
    std::vector<float> maximum(query.size());
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = u * unit;
      dequantize(keys.RowBytes(first), keys.cols, maximum.data());
      for (int64_t j = first + 1; j < std::min<int64_t>(first + unit, keys.rows); ++j) {
        dequantize(keys.RowBytes(j), keys.cols, key.data());
        for (size_t c = 0; c < key.size(); ++c) maximum[c] = std::max(maximum[c], key[c]);
      }
      dot(reinterpret_cast<const std::byte*>(maximum.data()), query.data(), 0, 1, keys.cols, 0.0f,
          &scores[static_cast<size_t>(u)], 0);
    }
  });
}

// add_mass multiplies each weight by 1 / sum. Dividing a row's sum by its query weight w therefore gives w
// times the softmax weight.
void WeighRows(const AttentionTile& tile, std::span<const float> query_weights, float* sums) {
  for (int r = 0; r < tile.rows; ++r) {
    sums[r] /= query_weights[static_cast<size_t>((tile.first_row + r) / tile.group)];
  }
}

}  // namespace

void AddSinks(const AttentionTile& tile, const AttentionKernels& kernels, float* state) {
  constexpr float kLog2e = 1.44269504f;
  if (tile.sinks == nullptr) return;
  const float unit = tile.int8_values ? kernels.code_unit : 1;
  for (int r = 0; r < tile.rows; ++r) {
    const float maximum = state[r];
    if (maximum == -std::numeric_limits<float>::infinity()) continue;  // a row without keys stays 0
    state[kAttentionRows + r] +=
        unit * std::exp2(tile.sinks[(tile.first_row + r) % tile.group] * kLog2e - maximum);
  }
}

std::pair<int64_t, int64_t> VisibleRows(const AttentionInput& in, int32_t position) {
  const std::span<const int32_t> keys = in.key_positions;
  const int32_t window = in.shape.window;
  const auto end = std::upper_bound(keys.begin(), keys.end(), position);
  const auto begin = window > 0 ? std::upper_bound(keys.begin(), end, position - window) : keys.begin();
  return {begin - keys.begin(), end - keys.begin()};
}

bool HasBf16Kernels(DType cache) { return cache == DType::kBF16 || cache == DType::kQ8_0; }

const AttentionKernels& KernelsFor(const KernelTable& kernels, const AttentionShape& shape, DType cache) {
  if (!HasBf16Kernels(cache)) return kernels.attention;
  return KeyBits(shape, kernels.attention_int8) > 0 ? kernels.attention_int8 : kernels.attention_bf16;
}

bool Int8Values(const AttentionShape& shape, const AttentionKernels& kernels) {
  return shape.int8_values && kernels.code_bytes > 0 && shape.head_dim <= kCodeDim;
}

int KeyBits(const AttentionShape& shape, const AttentionKernels& kernels) {
  COPPICE_CHECK(shape.key_bits == 0 || shape.key_bits == 8 || shape.key_bits == 16);
  const bool permitted = shape.key_bits > 0 && kernels.key_bits > 0 && Int8Values(shape, kernels);
  return permitted ? std::max(shape.key_bits, kernels.key_bits) : 0;
}

bool PacksKeys(const AttentionShape& shape, const AttentionKernels& kernels) {
  return kernels.packs_pairs || KeyBits(shape, kernels) > 0;
}

bool PackingPays(const AttentionShape& shape, const AttentionKernels& kernels, int64_t row_tiles) {
  return Int8Values(shape, kernels) || (kernels.packs_pairs && row_tiles > 1);
}

void AttentionOps::Grow(Tensor& scratch, int64_t rows, int64_t floats) {
  if (scratch.rows() < rows || scratch.cols() < floats) {
    scratch.Resize(DType::kF32, std::max(rows, scratch.rows()), std::max(floats, scratch.cols()));
  }
}

PackedCache& AttentionOps::PackedOf(const AttentionInput& in) {
  if (in.packed != nullptr) return *in.packed;
  packed_.Begin(in.first_kv_head + in.shape.kv_heads, in.keys.rows);
  return packed_;
}

void AttentionOps::Attention(const AttentionInput& in, MutableTensorView out) {
  CheckAttention(in, out);
  if (in.queries.rows == 0) return;
  AttentionPlan plan(in, kernels_);
  if (plan.Packs()) plan.Pack(pool_, PackedOf(in));
  const int64_t dim = in.shape.head_dim;
  const int64_t state_floats = AttentionStateFloats(dim);
  const StateRun run{plan, pool_, in.shape.kv_heads, in.keys.rows, true, state_floats};
  Grow(scratch_, pool_.size(), AttentionScratchFloats(dim) + 2 * state_floats);
  const MutableTensorView scratch = scratch_.mutable_view();
  const auto finish = [&](int64_t pair, const AttentionTile& tile, float* state) {
    AddSinks(tile, plan.kernels(), state);
    float* first = reinterpret_cast<float*>(out.data) + pair / plan.tiles() * plan.group() * dim;
    plan.kernels().finish(tile, state, first, out.stride / 4);
  };

  const int64_t chunks = (in.keys.rows + kKeyChunk - 1) / kKeyChunk;
  if (run.pairs() >= 2 * pool_.size() || chunks == 1) {
    pool_.For(run.pairs(), 1, [&](int64_t begin, int64_t, int thread) {
      // One kv head after another, so that its keys and values stay in the caches. Under the causal mask the
      // last tiles see the most keys; they go first, so that no thread ends with a long tile.
      const int64_t tile_index = plan.tiles() - 1 - begin % plan.tiles();
      const int64_t pair = begin / plan.tiles() * plan.tiles() + tile_index;
      float* state = scratch.Row<float>(thread).data();
      const AttentionTile tile = run.TileOf(pair);
      run.Sequential(tile, state, state + state_floats, state + 2 * state_floats);
      finish(pair, tile, state);
    });
    return;
  }

  Grow(states_, run.pairs() * chunks, state_floats);
  const MutableTensorView states = states_.mutable_view();
  pool_.For(run.pairs() * chunks, 1, [&](int64_t task, int64_t, int thread) {
    const AttentionTile tile = run.TileOf(task / chunks);
    const int64_t c = task % chunks;
    if (c < plan.FirstChunk(tile) || c >= plan.LastChunk(tile)) return;
    plan.kernels().attend(tile, c * kKeyChunk, plan.ChunkEnd(c), true, states.Row<float>(task).data(),
                          scratch.Row<float>(thread).data());
  });
  pool_.For(run.pairs(), 1, [&](int64_t pair, int64_t, int thread) {
    const AttentionTile tile = run.TileOf(pair);
    float* state = scratch.Row<float>(thread).data();
    plan.kernels().clear(tile, true, state);
    for (int64_t c = plan.FirstChunk(tile); c < plan.LastChunk(tile); ++c) {
      plan.kernels().merge(tile, true, states.Row<float>(pair * chunks + c).data(), state);
    }
    finish(pair, tile, state);
  });
}

// Pass 1: the maximum and sum of every row. Pass 2: tasks are ranges of keys. Each adds the weights of all
// rows in the order kv head, tile, row, in kMassLanes partial sums per key (or maxima), so no two threads add
// to one key.
void AttentionOps::AttentionMass(const AttentionInput& in, std::span<const float> query_weights,
                                 MassPool pool, MutableTensorView mass) {
  CheckAttentionMass(in, query_weights, mass);
  const AttentionPlan plan(in, kernels_, /*codes=*/false);
  const int64_t dim = in.shape.head_dim;
  const int64_t state_floats = 2 * kAttentionRows;
  const StateRun run{plan, pool_, in.shape.kv_heads, in.keys.rows, false, state_floats};
  const int64_t kernel_scratch = AttentionScratchFloats(dim);
  Grow(scratch_, pool_.size(), kernel_scratch + kMassKeys * kMassLanes + state_floats);
  Grow(states_, run.pairs(), state_floats);
  const MutableTensorView scratch = scratch_.mutable_view();
  const MutableTensorView states = states_.mutable_view();
  pool_.For(run.pairs(), 1, [&](int64_t pair, int64_t, int thread) {
    float* own = scratch.Row<float>(thread).data();
    const AttentionTile tile = run.TileOf(pair);
    float* state = states.Row<float>(pair).data();
    run.Sequential(tile, state, own + kernel_scratch, own);
    AddSinks(tile, plan.kernels(), state);
    if (!query_weights.empty()) WeighRows(tile, query_weights, state + kAttentionRows);
  });

  const std::span<float> result = mass.cols == 0 ? std::span<float>() : mass.Row<float>(0);
  pool_.For(in.keys.rows, kMassKeys, [&](int64_t begin, int64_t end, int thread) {
    float* own = scratch.Row<float>(thread).data();
    float* sums = own + kernel_scratch;
    std::fill_n(sums, kMassKeys * kMassLanes, 0.0f);
    for (int64_t pair = 0; pair < run.pairs(); ++pair) {
      plan.kernels().add_mass(run.TileOf(pair), begin, end, states.Row<float>(pair).data(),
                              pool == MassPool::kMaximum, sums, own);
    }
    for (int64_t j = begin; j < end; ++j) {
      const std::span<const float> lanes(sums + (j - begin) * kMassLanes, kMassLanes);
      float pooled = 0;
      for (const float x : lanes) pooled = pool == MassPool::kSum ? pooled + x : std::max(pooled, x);
      result[static_cast<size_t>(j)] = pooled;
    }
  });
}

// Pass 1: raw scores, by ranges of keys, which are widened once for all queries of the kv head's group. With
// one task per query instead, every task would read the whole cache: 5.6 s instead of 0.8 s for 64 queries of
// 32 heads over 16k keys. Pass 2: softmax, by rows.
void AttentionOps::AttentionWeights(const AttentionInput& in, MutableTensorView weights) {
  CheckAttentionWeights(in, weights);
  if (in.queries.rows == 0) return;
  const AttentionShape& s = in.shape;
  const int64_t group = s.heads / s.kv_heads;
  const int64_t begin = VisibleRows(in, in.query_positions.front()).first;
  const int64_t end = VisibleRows(in, in.query_positions.back()).second;
  const int64_t ranges = (end - begin + kWeightKeys - 1) / kWeightKeys;
  Grow(scratch_, pool_.size(), kWeightKeys * s.head_dim);
  const MutableTensorView scratch = scratch_.mutable_view();
  pool_.For(s.kv_heads * ranges, 1, [&](int64_t task, int64_t, int thread) {
    const int64_t first = begin + task % ranges * kWeightKeys;
    const int64_t kv_head = task / ranges;
    float* keys = scratch.Row<float>(thread).data();
    const int64_t count = std::min(kWeightKeys, end - first);
    for (int64_t j = 0; j < count; ++j) {
      kernels_.dequantize[static_cast<size_t>(in.keys.dtype)](
          in.keys.RowBytes(first + j) + BytesOf(in.keys.dtype, kv_head * s.head_dim), s.head_dim,
          keys + j * s.head_dim);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      ScoreKeys(in, head, first, std::span(keys, static_cast<size_t>(count * s.head_dim)), weights);
    }
  });
  pool_.For(weights.rows, 1, [&](int64_t row, int64_t, int) {
    WeighScores(in, row / s.heads, row % s.heads, weights.Row<float>(row));
  });
}

// weights[i * heads + head][first + j] = q_i . key_j for all queries.
void AttentionOps::ScoreKeys(const AttentionInput& in, int64_t head, int64_t first,
                             std::span<const float> keys, MutableTensorView weights) const {
  const int64_t dim = in.shape.head_dim;
  const auto dot = kernels_.dot[static_cast<size_t>(DType::kF32)];
  for (int64_t i = 0; i < in.queries.rows; i += kWeightQueries) {
    const int64_t some = std::min(kWeightQueries, in.queries.rows - i);
    const float* q = in.queries.Row<float>(i).data() + head * dim;
    float* scores = weights.Row<float>(i * in.shape.heads + head).data() + first;
    for (const float* key = keys.data(); key != keys.data() + keys.size(); key += dim, ++scores) {
      dot(reinterpret_cast<const std::byte*>(key), q, in.queries.stride / 4, some, dim, 0.0f, scores,
          in.shape.heads * weights.stride / 4);
    }
  }
}

// Turns the scores of one query and head into softmax weights.
void AttentionOps::WeighScores(const AttentionInput& in, int64_t query, int64_t head,
                               std::span<float> scores) const {
  const int32_t p = in.query_positions[static_cast<size_t>(query)];
  const auto [begin, end] = VisibleRows(in, p);
  const std::span<const float> slopes = in.shape.alibi_slopes;
  const float slope = slopes.empty() ? 0.0f : slopes[static_cast<size_t>(head)];
  std::fill(scores.begin(), scores.begin() + begin, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    float& score = scores[static_cast<size_t>(j)];
    score = in.shape.scale * score + slope * static_cast<float>(in.key_positions[static_cast<size_t>(j)] - p);
  }
  if (in.shape.sinks.empty()) {
    kernels_.softmax(scores.data() + begin, end - begin);
  } else {
    std::vector<float> with_sink(scores.begin() + begin, scores.begin() + end);
    with_sink.push_back(in.shape.sinks[static_cast<size_t>(head)]);
    kernels_.softmax(with_sink.data(), std::ssize(with_sink));
    std::copy(with_sink.begin(), with_sink.end() - 1, scores.begin() + begin);
  }
  std::fill(scores.begin() + end, scores.end(), 0.0f);
}

// mean_h q_h . k_g(h) = 1/heads sum_g (sum_{h in g} q_h) . k_g. Summing the queries of each kv head first
// means that each key is read and multiplied once, not once per head.
void AttentionOps::UnitScores(const AttentionInput& in, int unit, KeyPool pool,
                              MutableTensorView unit_scores) {
  CheckUnitScores(in, unit, unit_scores);
  const AttentionShape& s = in.shape;
  const int64_t group = s.heads / s.kv_heads;
  std::vector<float> mean(static_cast<size_t>(in.queries.cols), 0.0f);
  for (int64_t i = 0; i < in.queries.rows; ++i) {
    kernels_.add(in.queries.Row<float>(i).data(), in.queries.cols, mean.data());
  }
  std::vector<float> grouped(static_cast<size_t>(in.keys.cols), 0.0f);
  const float factor = 1.0f / (static_cast<float>(in.queries.rows) * static_cast<float>(s.heads));
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t c = 0; c < s.head_dim; ++c) {
      grouped[static_cast<size_t>(h / group * s.head_dim + c)] +=
          factor * mean[static_cast<size_t>(h * s.head_dim + c)];
    }
  }
  const std::span<float> scores = unit_scores.cols == 0 ? std::span<float>() : unit_scores.Row<float>(0);
  if (pool == KeyPool::kMax) return ScoreUnitMaxima(kernels_, pool_, in.keys, unit, grouped, scores);
  const auto dot = kernels_.dot[static_cast<size_t>(in.keys.dtype)];
  pool_.For(unit_scores.cols, std::max<int64_t>(1, 256 / unit), [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = u * unit;
      const int64_t last = std::min<int64_t>(first + unit, in.keys.rows);
      float sum = 0;
      for (int64_t j = first; j < last; ++j) {
        float product = 0;
        dot(in.keys.RowBytes(j), grouped.data(), 0, 1, in.keys.cols, 0.0f, &product, 0);
        sum += product;
      }
      scores[static_cast<size_t>(u)] = sum / static_cast<float>(last - first);
    }
  });
}

}  // namespace coppice::cpu
