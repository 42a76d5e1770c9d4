// SlimInfer: dynamic token pruning of hidden states by blocks (file head of sliminfer.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/row_scores.h"
#include "policies/score_sum.h"

namespace coppice {

// What scores a block: the best of its units' mean keys, its own mean or maximum key (one unit per block), or
// the softmax mass of its best row.
enum class SlimInferScore { kUnits, kAvg, kMax, kMass };

struct SlimInferConfig {
  std::vector<int> layers;    // p_s: from this layer on only keep[s] tokens; ascending, in [1, L - 1]
  std::vector<int64_t> keep;  // k_s: tokens, including block 0 and the tail
  std::vector<int64_t> decode_keep = {};  // prompt tokens that a decode step attends; empty: as `keep`
  int block = 64;                         // B: tokens per block
  int unit = 8;                           // u: tokens per scoring unit; divides block
  int window = 4;                         // w: last queries, averaged
  int last = 64;                          // this many last tokens stay, in whole blocks, and the window's
  SlimInferScore score = SlimInferScore::kUnits;  // kMass in prefill only, in decode as kUnits
  double gamma = 0.9;     // blocks are exchanged if the overlap falls below this share
  bool revive = false;    // dropped blocks are parked and may come back
  RowScores scores = {};  // of score = kMass
  std::vector<PositionSpan> question = {};
  int revive_cap = 4;  // parked blocks that a stage computes in one step, at most

  // At least this many last tokens stay.
  int64_t Tail() const { return std::max({last, window, 1}); }
};

// Blocks of `prompt_tokens` positions, the last of them perhaps shorter.
struct SlimInferBlocks {
  // `tail_begin`: the position of the first token of the tail.
  SlimInferBlocks(int block, int64_t prompt_tokens, int64_t tail_begin);

  int64_t count;  // of all blocks
  int64_t tail;   // block 0 and those from this one on always stay
  int64_t Always() const { return count - tail + (tail > 0 ? 1 : 0); }
  // Number of blocks that `budget` tokens allow.
  int64_t Within(int64_t budget) const;

 private:
  int block_;
  int64_t tokens_;
};

class SlimInferPolicy final : public TokenPolicy {
 public:
  explicit SlimInferPolicy(SlimInferConfig config);

  PolicyFacts Facts() const override {
    return {.parks = config_.revive, .offload_block = decides_in_decode_ ? config_.block : 0};
  }
  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet AfterAttention(const Observation& seen, Backend& be) override;

  DecodePoint AttendsAt(int layer) const override;
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be) override;

 private:
  using Blocks = std::vector<int32_t>;  // ascending

  // The stage that decides after the attention of `layer`, or -1.
  int StageAfter(int layer) const;
  Needs::Units Units() const {
    const bool max = config_.score == SlimInferScore::kMax;
    return {config_.window, config_.unit, max ? KeyPool::kMax : KeyPool::kMean};
  }
  SlimInferBlocks BlocksOf(const Observation& seen) const {
    return {config_.block, seen.prompt_tokens, seen.LastEntered(config_.Tail())};
  }
  // r of every block (2), from the scores of its units; -inf where it has no keys.
  std::vector<float> BlockScores(const TensorView& unit_scores) const;
  // The same from softmax mass: the best of a block's rows.
  std::vector<float> BlockMass(std::span<const float> mass, std::span<const int32_t> positions) const;
  bool by_mass() const { return config_.score == SlimInferScore::kMass; }
  // Returns true if a stage ranks by the mass of `layer`.
  bool ScoresMass(int layer) const;
  // (3) over blocks of positions: the best `count` by (r descending, block ascending), at most `parked_room`
  // of the parked ones among them. That limit does not apply to blocks that always stay.
  static Blocks BestBlocks(const std::vector<float>& r, const std::vector<bool>& parked, int64_t count,
                           int64_t parked_room);

  SlimInferConfig config_;
  bool decides_in_decode_;
  ScoreSum sum_;                // of score = kMass
  std::vector<Blocks> active_;  // [stages]; empty before the first step
};

// Returns true if the attended set is to be exchanged: |cand and active| / |cand| < gamma, in integers (gamma
// in millionths).
bool ShouldSwap(int64_t common, int64_t candidates, double gamma);

MethodInfo SlimInferMethod();

}  // namespace coppice
