// What SlimInfer's steps attend: candidate sets, exchange by overlap, the cap on what comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "policies/method_test_support.h"
#include "policies/methods/sliminfer.h"
#include "policies/presets.h"
#include "policy_scene.h"

namespace coppice {
namespace {

constexpr Needs::Units kDecodeUnits{.queries = 1, .unit = 2};

// The overlap is compared in integers, and an overlap of gamma keeps the set.
TEST(ShouldSwap, ComparesInIntegers) {
  EXPECT_FALSE(ShouldSwap(9, 10, 0.9));
  EXPECT_TRUE(ShouldSwap(8, 9, 0.9));
  EXPECT_TRUE(ShouldSwap(57, 64, 0.9));
  EXPECT_FALSE(ShouldSwap(58, 64, 0.9));
  for (int64_t common = 0; common <= 10; ++common) {
    EXPECT_FALSE(ShouldSwap(common, 10, 0)) << common;  // T-SL1
    EXPECT_TRUE(ShouldSwap(common, 10, 1.1)) << common;
  }
}

// A decode step over 40 prompt tokens in blocks of 4 and two generated ones.
class SlimInferStep {
 public:
  SlimInferStep(SlimInferConfig config, std::vector<float> units, std::vector<int32_t> parked_blocks)
      : slim(std::move(config)), scene(Count(), 40, 9) {
    scene.seen.phase = Phase::kDecode;
    Score(std::move(units));
    for (const int32_t p : positions) {
      const bool is = std::find(parked_blocks.begin(), parked_blocks.end(), p / 4) != parked_blocks.end();
      parked.push_back(p < 40 && is);
    }
  }
  void Score(std::vector<float> units) {
    scene.seen.ClearScores();
    units.resize(20, 0.0f);
    scene.Units(kDecodeUnits, units);
  }
  std::vector<int32_t> Blocks() {
    std::vector<int32_t> blocks;
    const TokenSet set = slim.Attend(scene.seen, {positions, parked}, *scene.be);
    EXPECT_TRUE(set.Contains(40) && set.Contains(41));  // T-SL3
    for (const int32_t row : set.ToRows()) {
      if (row < 40 && (blocks.empty() || blocks.back() != row / 4)) blocks.push_back(row / 4);
    }
    return blocks;
  }
  static std::vector<int32_t> Count() {
    std::vector<int32_t> all(42);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  std::vector<int32_t> positions = Count();
  std::vector<uint8_t> parked;
  SlimInferPolicy slim;
  Scene scene;
};

SlimInferConfig FiveBlocks() {
  return {.layers = {10},
          .keep = {20},
          .block = 4,
          .unit = 2,
          .window = 1,
          .last = 1,
          .revive = true,
          .revive_cap = 2};
}

// Units 2 j and 2 j + 1 are block j's.
TEST(SlimInferPolicy, ExchangesBlocksWhereTheOverlapFalls) {
  SlimInferStep step(FiveBlocks(), {0, 0, 0, 5, 4, 0, 3, 0, 0, 2, 1, 0}, {4, 5, 6, 7, 8});
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 1, 2, 3, 9}));  // what prefill kept is what scores best
  // Two blocks in five change: 3 / 5 < 0.9.
  step.Score({0, 0, 0, 5, 0, 0, 0, 0, 0, 9, 0, 8});
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 1, 4, 5, 9}));
}

TEST(SlimInferPolicy, KeepsBlocksWhereTheOverlapIsEnough) {
  SlimInferConfig config = FiveBlocks();
  config.gamma = 0.6;
  SlimInferStep step(config, {0, 0, 0, 5, 0, 0, 0, 0, 0, 9, 0, 8}, {4, 5, 6, 7, 8});
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 1, 2, 3, 9}));  // 3 / 5 is not below 0.6
}

TEST(SlimInferPolicy, NoMoreBlocksComeBackThanTheCap) {
  SlimInferStep step(FiveBlocks(), {0, 0, 0, 1, 0, 2, 0, 0, 9, 0, 8, 0, 7, 0}, {4, 5, 6, 7, 8});
  EXPECT_EQ(step.Blocks(),
            (std::vector<int32_t>{0, 2, 4, 5, 9}));  // 6 is third best, but the third that is parked
}

// The cap limits what a step computes, not what it wants: three of five blocks wanted are parked, so the
// overlap is 2 / 5, though under a cap of 1 only one block changes.
TEST(SlimInferPolicy, TheOverlapIsThatOfTheUncappedSet) {
  SlimInferConfig config = FiveBlocks();
  config.gamma = 0.7;
  config.revive_cap = 1;
  SlimInferStep step(config, {0, 0, 0, 1, 0, 2, 0, 0, 9, 0, 8, 0, 7, 0}, {4, 5, 6, 7, 8});
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 1, 2, 4, 9}));
}

// Algorithm 1 behind a prompt of 32k tokens, with the published budgets of one model. Prefill kept a stage's
// first blocks, and the others are parked.
class PublishedStage {
 public:
  PublishedStage(const ModelShape& shape, size_t stage)
      : policy_(MakeMethod(SlimInferMethod(), "sliminfer", shape).policy),
        scene_(Count(), kTokens, StageLayers(shape)[stage] - 1),
        blocks_(SlimInferBudgets(shape, kTokens)[stage] / 64) {
    scene_.seen.phase = Phase::kDecode;
    for (const int32_t p : positions_) parked_.push_back(p < kTokens && !Active().contains(p / 64));
  }

  int64_t blocks() const { return blocks_; }
  std::set<int32_t> Active() const {
    std::set<int32_t> active = {kTokens / 64 - 1};
    for (int32_t j = 0; j + 1 < blocks_; ++j) active.insert(j);
    return active;
  }
  // A step that scores `parked` of the parked blocks above the others, the later the better. Returns the
  // blocks that it attends.
  std::set<int32_t> Attend(int64_t parked) {
    std::vector<float> units(kTokens / 8, 0.0f);
    for (int64_t j = 0; j + 1 < blocks_; ++j) units[static_cast<size_t>(8 * j)] = 1;
    for (int64_t j = 0; j < parked; ++j)
      units[static_cast<size_t>(8 * (100 + blocks_ + j))] = static_cast<float>(2 + j);
    scene_.seen.ClearScores();
    scene_.Units({.queries = 4, .unit = 8}, units);
    std::set<int32_t> attended;
    for (const int32_t row : policy_->Attend(scene_.seen, {positions_, parked_}, *scene_.be).ToRows()) {
      if (row < kTokens) attended.insert(row / 64);
    }
    return attended;
  }

 private:
  static constexpr int32_t kTokens = 32768;
  static std::vector<int32_t> Count() {
    std::vector<int32_t> all(kTokens + 1);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<int32_t> positions_ = Count();
  std::vector<uint8_t> parked_;
  std::unique_ptr<TokenPolicy> policy_;
  Scene scene_;
  int64_t blocks_;
};

// T-SL1 to T-SL4 there: blocks are exchanged as soon as less than 0.9 of them stay the same, and no more than
// four of those wanted are computed.
TEST(SlimInferPolicy, ExchangesBlocksAtThePublishedBudgets) {
  ModelShape qwen;
  qwen.architecture = "qwen2";
  qwen.layers.resize(28);
  qwen.hidden = 3584;
  for (const ModelShape& shape : {Llama8B(), qwen}) {
    for (const size_t s : {0u, 1u, 2u}) {
      SCOPED_TRACE(shape.architecture + " stage " + std::to_string(s));
      PublishedStage stage(shape, s);
      const std::set<int32_t> active = stage.Active();
      const int64_t enough = stage.blocks() / 10;  // so many may change
      EXPECT_EQ(stage.Attend(enough), active);
      const std::set<int32_t> next = stage.Attend(enough + 1);
      EXPECT_EQ(static_cast<int64_t>(next.size()), stage.blocks());
      EXPECT_TRUE(next.contains(0) && next.contains(*active.rbegin()));
      std::vector<int32_t> back;
      std::set_difference(next.begin(), next.end(), active.begin(), active.end(), std::back_inserter(back));
      const auto best = static_cast<int32_t>(100 + stage.blocks() + enough);
      EXPECT_EQ(back, (std::vector<int32_t>{best - 3, best - 2, best - 1, best}));
    }
  }
}

TEST(SlimInferPolicy, ASmallerDecodeBudgetShrinksTheSet) {
  SlimInferConfig config = FiveBlocks();
  config.decode_keep = {12};
  SlimInferStep step(config, {0, 0, 0, 1, 0, 2, 0, 0}, {4, 5, 6, 7, 8});
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 2, 9}));  // T-SL4
  EXPECT_EQ(step.slim.Facts().offload_block, 4);
}

TEST(SlimInferPolicy, TiesGoToTheEarlierBlockWhileGeneratingToo) {
  SlimInferStep step(FiveBlocks(), {}, {});
  step.slim = SlimInferPolicy(FiveBlocks());
  EXPECT_EQ(step.Blocks(), (std::vector<int32_t>{0, 1, 2, 3, 9}));
}

}  // namespace
}  // namespace coppice
