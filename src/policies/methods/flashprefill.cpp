// FlashPrefill: block-sparse attention in prefill, scored by mean keys and cut off at a share of the best
// score. No training; decode is dense, the cache stays whole.
//
// Per query head, with kbar_j the mean of the keys of block j,
//   S_bj = sum over the queries q of block b that see the whole block j of exp(scale q . kbar_j)    (1)
//   query block b reads key block j if S_bj >= alpha max_j' S_bj',                                  (2)
//     and always the first `sink` blocks, the `window` blocks up to its own, and, if it is one of the last
//     `last` query blocks, every block                                                              (3)
//
// The public code divides S_bj by sum_j' S_bj', which changes nothing in (2). A threshold relative to the
// best block needs no sorting and no running sum, and does not admit the long tail that a share of the sum
// does.
//
// Published alpha (the public code, by model): 0.18 Llama-3.1-8B, 0.08 Qwen2.5-7B, 0.12 Qwen3-30B-A3B.
//
// Time: N^2 H c / block multiply-adds per layer, 1 / block of attention's own, and N^2 H / (2 block)
// exponentials. Memory: the mean keys of one kv head and kTile rows of scores.
//
// ALiBi's bias is linear in the distance: the mean over a block's keys is the bias at their mean position,
// which (1) adds.
//
// Source: Q. Fan et al., "FlashPrefill: instantaneous pattern discovery and thresholding for ultra-fast
// long-context prefilling", arXiv 2603.06199, and its public code.
#include "policies/methods/flashprefill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "policies/exp_of_negative.h"
#include "policies/presets.h"

namespace coppice {

namespace {

constexpr int64_t kTile = 512;  // query rows per product

std::vector<float> MeanPositions(std::span<const int32_t> positions, int block) {
  std::vector<float> means;
  for (size_t begin = 0; begin < positions.size(); begin += static_cast<size_t>(block)) {
    const auto part =
        positions.subspan(begin, std::min(static_cast<size_t>(block), positions.size() - begin));
    const double sum = std::accumulate(part.begin(), part.end(), 0.0);
    means.push_back(static_cast<float>(sum / static_cast<double>(part.size())));
  }
  return means;
}

// Adds to `sums` the exponentials of one query block's scores, relative to the largest of them. Row i of
// `scores` sees the first seen(i) key blocks.
template <typename Seen>
void AddBlock(const MutableTensorView& scores, Seen&& seen, double* sums) {
  const auto visible = [&](int64_t i) { return scores.Row<float>(i).first(static_cast<size_t>(seen(i))); };
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < scores.rows; ++i) {
    for (const float s : visible(i)) max = std::max(max, s);
  }
  for (int64_t i = 0; i < scores.rows; ++i) {
    const std::span<float> row = visible(i);
    for (float& s : row) s = ExpOfNegative(s - max);
    for (size_t j = 0; j < row.size(); ++j) sums[j] += row[j];
  }
}

}  // namespace

ProbeKeys::ProbeKeys(const AttentionInput& head, int block, Backend& be)
    : positions_(MeanPositions(head.key_positions, block)) {
  COPPICE_CHECK(head.shape.kv_heads == 1);
  const MeanKeys means = MeanKeysOf(head, block, be);
  be.Pack(means.keys.view(), packed_);
}

std::vector<double> ProbeScores(const AttentionInput& head, const BlockGrid& grid, const ProbeKeys& keys,
                                int64_t end, Backend& be) {
  const int64_t blocks_per_tile = std::max<int64_t>(1, kTile / grid.block);
  const float slope = head.shape.alibi_slopes.empty() ? 0.0f : head.shape.alibi_slopes.front();
  std::vector<double> sums(static_cast<size_t>(end * keys.count()), 0.0);
  Tensor scores;
  for (int64_t first = 0; first < end; first += blocks_per_tile) {
    const int64_t begin = first * grid.block;
    const int64_t rows = std::min(std::min(end, first + blocks_per_tile) * grid.block, grid.queries) - begin;
    scores.Resize(DType::kF32, rows, keys.count());
    be.Product(head.queries.Rows(begin, rows), keys.packed(), {}, scores.mutable_view());
    for (int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<float>(head.query_positions[static_cast<size_t>(begin + i)]);
      const std::span<float> row = scores.mutable_view().Row<float>(i);
      for (size_t j = 0; j < row.size(); ++j)
        row[j] = head.shape.scale * row[j] + slope * (keys.positions()[j] - at);
    }
    for (int64_t b = first; b * grid.block < begin + rows; ++b) {
      const int64_t own = grid.offset() + b * grid.block;
      const int64_t count = std::min<int64_t>(grid.block, begin + rows - b * grid.block);
      AddBlock(
          scores.mutable_view().Rows(b * grid.block - begin, count),
          [&](int64_t i) { return (own + i + 1) / grid.block; }, sums.data() + b * keys.count());
    }
  }
  return sums;
}

std::vector<uint8_t> NearTheBest(std::span<const double> scores, double alpha) {
  std::vector<uint8_t> chosen(scores.size(), 1);
  double best = 0;
  for (const double s : scores) {
    if (std::isnan(s)) return chosen;
    best = std::max(best, s);
  }
  if (best > 0) {
    for (size_t j = 0; j < scores.size(); ++j) chosen[j] = scores[j] >= alpha * best ? 1 : 0;
  }
  return chosen;
}

bool FlashPrefillPolicy::ChoosesPattern(Phase phase, int /*layer*/) const {
  return phase == Phase::kPrefill && config_.alpha > 0;
}

SparsePattern FlashPrefillPolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const BlockGrid grid = GridOf(in, config_.block);
  if (StaysDense(scene, grid) || config_.alpha <= 0) return {};
  const int64_t end = std::clamp<int64_t>(grid.query_blocks() - config_.last, 0, grid.first_dense());
  SparsePattern pattern = PatternOn(grid, in.shape.heads);
  const int group = in.shape.heads / in.shape.kv_heads;
  std::optional<ProbeKeys> keys;
  for (int h = 0; h < in.shape.heads; ++h) {
    scene.Pause();
    const AttentionInput head = OneHead(in, h);
    if (h % group == 0) keys.emplace(head, config_.block, be);
    const std::vector<double> scores = ProbeScores(head, grid, *keys, end, be);
    std::vector<std::vector<int32_t>>& key_blocks = pattern.heads[static_cast<size_t>(h)].key_blocks;
    for (int64_t b = 0; b < grid.query_blocks(); ++b) {
      std::vector<uint8_t> chosen(static_cast<size_t>(grid.key_blocks()), 1);
      if (b < end) {
        const auto row = std::span(scores).subspan(static_cast<size_t>(b * grid.key_blocks()), chosen.size());
        chosen = NearTheBest(row, config_.alpha);  // (2)
        const int64_t diagonal = grid.FirstDiagonal(b);
        for (int64_t j = 0; j < grid.key_blocks(); ++j) {
          if (j < config_.sink || j > diagonal - config_.window) chosen[static_cast<size_t>(j)] = 1;  // (3)
        }
      }
      key_blocks.push_back(KeyBlocksOf(grid, b, chosen));
    }
  }
  return pattern;
}

namespace {

Keys FlashPrefillKeys(FlashPrefillConfig& c, const ModelShape& shape) {
  c.alpha = FlashPrefillAlpha(shape);
  return {
      {"alpha", &c.alpha, 0, 1, "share of the best block's score from which on a block is read; 0 is dense",
       "by model: 0.08 to 0.18"},
      {"block", &c.block, 16, 1024, "queries and keys per block"},
      {"sink", &c.sink, 1, kManyTokens, "first key blocks that are always read"},
      {"window", &c.window, 1, kManyTokens, "key blocks up to the own one that are always read"},
      {"last", &c.last, 0, kManyTokens, "last query blocks that read every key"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeFlashPrefill(const MethodSpec& spec, const MethodContext& context) {
  FlashPrefillConfig c;
  Keys keys = FlashPrefillKeys(c, context.shape);
  keys.Read(spec);
  return MakeInstance<FlashPrefillPolicy>(keys, {LengthReason(context, c.minimum), WindowReason(context)}, c);
}

}  // namespace

MethodInfo FlashPrefillMethod() {
  return {"flashprefill",
          "sparse prefill attention: the blocks whose mean keys score near each query block's best",
          "FlashPrefill, arXiv 2603.06199",
          kSparsePrefill,
          HelpOf(&FlashPrefillKeys),
          &MakeFlashPrefill};
}

}  // namespace coppice
