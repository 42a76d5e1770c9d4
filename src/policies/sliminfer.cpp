// SlimInfer: dynamic pruning of hidden states by blocks, for long prompts. No training. Prefill, no revival.
//
// The stream is split into blocks of B rows, each into units of u rows. After the attention of a deciding layer
//   q̄^h   = mean of the last w queries                                   (1)
//   r(j)  = max over units m of block j of (1/H) sum_h q̄^h . k̄^g(h)(j,m)  (2) raw dots, k̄ the unit's mean key
//   keep  = block 0, the tail block, and the best by r, k_s tokens in all (3) ties: the earlier block
// The rows of the other blocks leave the stream before this layer's FFN: they have no keys in later layers.
//
// Deciding layer: p_s - 1, so that layers >= p_s hold exactly k_s rows. This reading reproduces the paper's
// memory table (32k tokens, Llama-3.1-8B, fp16: 10 * 32768 + 10 * 8192 + 10 * 4096 + 2 * 2048 rows = 1.73 GiB
// of 4.00) and its FLOP ratio (bound 2.62, measured 2.53); p_s does not.
//
// Later stages choose among the survivors. Their blocks are blocks of the prompt again, because whole blocks
// were dropped before; only rows that something else protected shift the borders, and come on top of k_s.
#include "policies/sliminfer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace coppice {

SlimInferPolicy::SlimInferPolicy(SlimInferConfig config) : config_(std::move(config)) {
  COPPICE_CHECK(config_.layers.size() == config_.keep.size() && config_.block % config_.unit == 0);
}

int SlimInferPolicy::StageAfter(int layer) const {
  const auto it = std::find(config_.layers.begin(), config_.layers.end(), layer + 1);
  return it == config_.layers.end() ? -1 : static_cast<int>(it - config_.layers.begin());
}

Needs SlimInferPolicy::NeedsAt(int layer) const {
  if (StageAfter(layer) < 0) return {};
  return {.mass_queries = {}, .unit_scores = {{.queries = config_.window, .unit = config_.unit}}};
}

TokenSet SlimInferPolicy::AfterAttention(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int stage = StageAfter(seen.layer);
  if (seen.phase != Phase::kPrefill || stage < 0) return TokenSet::All(rows);
  const int64_t budget = config_.keep[static_cast<size_t>(stage)];
  if (budget >= rows) return TokenSet::All(rows);

  const std::span<const float> unit_score = seen.UnitScores({.queries = config_.window, .unit = config_.unit})
                                                .Row<float>(0);  // (1), Backend::UnitScores
  const int64_t blocks = (rows + config_.block - 1) / config_.block;
  const int64_t units_per_block = config_.block / config_.unit;
  std::vector<float> r(static_cast<size_t>(blocks));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < blocks; ++j) {
    float best = -kInfinity;  // a NaN loses against everything
    const int64_t end = std::min<int64_t>((j + 1) * units_per_block, static_cast<int64_t>(unit_score.size()));
    for (int64_t m = j * units_per_block; m < end; ++m) {
      best = std::max(best, unit_score[static_cast<size_t>(m)]);  // (2)
    }
    r[static_cast<size_t>(j)] = std::min(best, std::numeric_limits<float>::max());
  }
  r.front() = r.back() = kInfinity;  // block 0 and the tail stay
  const int64_t kept_blocks = std::max<int64_t>(budget / config_.block, std::min<int64_t>(2, blocks));
  const TokenSet best = be.TopK(TensorView(r.data(), DType::kF32, 1, blocks), kept_blocks);  // (3)

  std::vector<int32_t> kept;
  kept.reserve(static_cast<size_t>(kept_blocks * config_.block));
  for (const int32_t j : best.ToRows()) {
    const int64_t end = std::min<int64_t>((j + 1) * config_.block, rows);
    for (int64_t row = j * config_.block; row < end; ++row) kept.push_back(static_cast<int32_t>(row));
  }
  return TokenSet::Of(std::move(kept), rows);
}

}  // namespace coppice
