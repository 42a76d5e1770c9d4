#include "policies/methods/sliminfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "policies/method_test_support.h"
#include "policies/presets.h"
#include "policy_scene.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using testing::HasSubstr;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Needs::Units kUnits{.queries = 1, .unit = 2};

// Blocks of four rows, two units each. Decides after layer 9.
TokenSet Answer(int64_t rows, int64_t keep, const std::vector<float>& units) {
  Scene scene(rows, 9);
  EXPECT_EQ(static_cast<int64_t>(units.size()), (rows + 1) / 2);
  scene.Units(kUnits, units);
  SlimInferPolicy slim({.layers = {10}, .keep = {keep}, .block = 4, .unit = 2, .window = 1, .last = 1});
  TokenSet set = slim.AfterAttention(scene.seen, *scene.be);
  EXPECT_EQ(set.universe(), rows);
  return set;
}

Rows Blocks(const TokenSet& set) {  // and that each is whole
  Rows blocks;
  for (const int32_t row : set.ToRows()) {
    if (row % 4 == 0) blocks.push_back(row / 4);
    EXPECT_TRUE(!blocks.empty() && blocks.back() == row / 4) << "row " << row;
  }
  int64_t rows = 0;
  for (const int32_t b : blocks) rows += std::min<int64_t>(4, set.universe() - 4 * b);
  EXPECT_EQ(rows, set.size());
  return blocks;
}

TEST(SlimInferPolicy, KeepsTheBestBlocksByTheirBestUnit) {
  //                                block 0   1      2      3      4      5 (tail)
  const std::vector<float> units = {0, 0, 5, -9, 1, 2, -3, 6, 4, 4, -7, -7};
  EXPECT_EQ(Blocks(Answer(24, 8, units)), (Rows{0, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, units)), (Rows{0, 3, 5}));
  EXPECT_EQ(Blocks(Answer(24, 16, units)), (Rows{0, 1, 3, 5}));
  EXPECT_EQ(Blocks(Answer(24, 19, units)), (Rows{0, 1, 3, 5}));  // T-SL4: whole blocks within the budget
  EXPECT_EQ(Blocks(Answer(24, 20, units)), (Rows{0, 1, 3, 4, 5}));
  EXPECT_TRUE(Answer(24, 24, units).IsAll());  // T-SL6
  EXPECT_TRUE(Answer(24, 1000, units).IsAll());
}

TEST(SlimInferPolicy, BlockZeroAndTheTailStandAboveTheBudget) {
  const std::vector<float> units(12, 1.0f);
  for (const int64_t keep : {1, 3, 4, 5, 7, 8})
    EXPECT_EQ(Blocks(Answer(24, keep, units)), (Rows{0, 5})) << keep;
}

TEST(SlimInferPolicy, PartialTail) {
  // 22 rows: the tail has two rows and one unit; 21 rows: one row, a unit of one.
  EXPECT_EQ(Blocks(Answer(22, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5})), (Rows{0, 3, 5}));
  EXPECT_EQ(Answer(22, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5}).size(), 10);
  EXPECT_EQ(Answer(21, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5}).size(), 9);
}

// The last block may hold a single token: the tail reaches back to the last 64, and to the window's queries.
TEST(SlimInferPolicy, TheQuestionStaysWhereverThePromptEnds) {
  for (int32_t tokens = 1024; tokens < 1024 + 64; ++tokens) {
    SCOPED_TRACE(tokens);
    const MethodInstance made =
        MakeMethod(SlimInferMethod(), "sliminfer:layers=10/20,keep=512/256,decode_keep=256/192,min=0",
                   Llama8B(), tokens);
    Rows positions(static_cast<size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    for (const int layer : {9, 19}) {
      // The worst scores are the tail's.
      Scene scene(positions, tokens, layer);
      std::vector<float> units((positions.size() + 7) / 8);
      std::iota(units.rbegin(), units.rend(), 0.0f);
      scene.Units({.queries = 4, .unit = 8}, units);
      Rows kept;
      for (const int32_t row : made.policy->AfterAttention(scene.seen, *scene.be).ToRows())
        kept.push_back(positions[static_cast<size_t>(row)]);
      EXPECT_LE(kept.size(), layer == 9 ? 512u : 256u);  // T-SL4
      EXPECT_EQ(kept[kept.size() - 64], tokens - 64) << layer;
      positions = kept;
    }
    Rows all(static_cast<size_t>(tokens) + 1);
    std::iota(all.begin(), all.end(), 0);
    Scene step(all, tokens, 19);
    step.seen.phase = Phase::kDecode;
    std::vector<float> units((static_cast<size_t>(tokens) + 7) / 8);
    std::iota(units.rbegin(), units.rend(), 0.0f);
    step.Units({.queries = 4, .unit = 8}, units);
    const std::vector<uint8_t> parked(all.size(), 0);
    const Rows attended = made.policy->Attend(step.seen, {all, parked}, *step.be).ToRows();
    EXPECT_LE(attended.size(), 192u + 1);
    EXPECT_EQ(attended[attended.size() - 65], tokens - 64);
  }
}

TEST(SlimInferPolicy, TheTailHoldsTheWindow) {
  const auto kept = [](int window, int last) {
    Scene scene(400, 9);
    scene.Units({.queries = window, .unit = 4}, std::vector<float>(100, 1.0f));
    SlimInferPolicy slim(
        {.layers = {10}, .keep = {8}, .block = 4, .unit = 4, .window = window, .last = last});
    return slim.AfterAttention(scene.seen, *scene.be).ToRows();
  };
  EXPECT_EQ(kept(1, 1), (Rows{0, 1, 2, 3, 396, 397, 398, 399}));
  EXPECT_EQ(kept(5, 1), (Rows{0, 1, 2, 3, 392, 393, 394, 395, 396, 397, 398, 399}));
  EXPECT_EQ(kept(1, 6), kept(5, 1));
}

TEST(SlimInferPolicy, Lengths) {
  for (const int64_t rows : {1, 3, 4, 5, 8, 9, 12, 13}) {
    const std::vector<float> units(static_cast<size_t>((rows + 1) / 2), 0.5f);
    const TokenSet set = Answer(rows, 8, units);
    EXPECT_TRUE(set.Contains(0)) << rows;
    EXPECT_TRUE(set.Contains(rows - 1)) << rows;
    EXPECT_EQ(set.IsAll(), rows <= 8) << rows;  // budget, budget + 1
    EXPECT_LE(set.size(), 8) << rows;
  }
}

TEST(SlimInferPolicy, TiesGoToTheEarlierBlock) {
  EXPECT_EQ(Blocks(Answer(24, 16, std::vector<float>(12, 1.0f))), (Rows{0, 1, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, 7, 1, 1, 7, 7, 7, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, -0.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0})), (Rows{0, 1, 5}));
}

// T-SL2 whatever the scores are.
TEST(SlimInferPolicy, StrangeScoresKeepTheEnds) {
  for (const float x : {-kInf, kInf, kNan}) {
    EXPECT_EQ(Blocks(Answer(24, 8, std::vector<float>(12, x))), (Rows{0, 5})) << x;
    const Rows three = Blocks(Answer(24, 12, std::vector<float>(12, x)));
    ASSERT_EQ(three.size(), 3u) << x;
    EXPECT_EQ(three.front(), 0) << x;
    EXPECT_EQ(three.back(), 5) << x;
  }
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, kNan, kNan, -kInf, 3, 1, 1, kNan, kNan, 0, 0})), (Rows{0, 2, 5}));
}

// A unit without a number does not hide the block's other unit, whichever of the two it is.
TEST(SlimInferPolicy, ANanIsTheWorstUnitOfItsBlock) {
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, 5, kNan, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(Blocks(Answer(24, 12, {0, 0, 1, 1, kNan, 5, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
}

TEST(SlimInferPolicy, DecidesAfterTheLayerBeforeTheStage) {
  SlimInferPolicy slim({.layers = {10, 20}, .keep = {16, 8}, .block = 4, .unit = 2, .window = 1, .last = 1});
  for (int layer = 0; layer < 32; ++layer) {
    const bool decides = layer == 9 || layer == 19;
    EXPECT_EQ(slim.NeedsAt(Phase::kPrefill, layer).empty(), !decides) << layer;
    Scene scene(24, layer);
    scene.Units(kUnits, std::vector<float>(12, 1.0f));
    const TokenSet set = slim.AfterAttention(scene.seen, *scene.be);
    EXPECT_EQ(set.size(), layer == 9 ? 16 : layer == 19 ? 8 : 24) << layer;
    EXPECT_TRUE(slim.RunFfn(scene.seen, *scene.be).IsAll());
    EXPECT_TRUE(slim.BeforeLayer(scene.seen, *scene.be).IsAll());
    EXPECT_EQ(slim.AttendsAt(layer), DecodePoint::kNone);  // nothing comes back, nothing is exchanged
    EXPECT_TRUE(slim.NeedsAt(Phase::kDecode, layer).empty());
  }
  EXPECT_EQ(slim.NeedsAt(Phase::kPrefill, 9).unit_scores, std::vector<Needs::Units>{kUnits});
  EXPECT_TRUE(slim.NeedsAt(Phase::kPrefill, 9).masses.empty());
}

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
    scene.Units(kUnits, units);
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
  qwen.layers = 28;
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

// The papers' ablations: where the stages begin, and what a block's key is.
// A share that misses a whole number by rounding alone is that number: 0.07 * 800 is 56.
TEST(SlimInferMethod, SharesThatAreWhole) {
  for (const auto& [tokens, kept] : {std::pair(800, 56), {600, 42}}) {
    EXPECT_THAT(
        SettingsOf(SlimInferMethod(), "sliminfer:layers=4,keep=0.07,block=1,unit=1", Llama8B(), tokens),
        HasSubstr(",keep=" + std::to_string(kept) + ","));
  }
}

// Later stages prune a prompt that fits the first budget: the paper's prompts of 8k tokens.
TEST(SlimInferMethod, StandsAsideWhereNoStageLeavesAnythingOut) {
  const auto reason = [](const std::string& spec, int64_t tokens) {
    return MakeMethod(SlimInferMethod(), spec, Llama8B(), tokens).reason;
  };
  for (const int64_t tokens : {2049, 4096, 6144, 8192}) EXPECT_EQ(reason("sliminfer", tokens), "") << tokens;
  EXPECT_EQ(reason("sliminfer", 2048), "2048 prompt tokens fit its last budget of 2048");
  EXPECT_EQ(reason("sliminfer:min=6000", 5000), "5000 prompt tokens are below its break-even of 6000");
  EXPECT_THAT(SettingsOf(SlimInferMethod(), "sliminfer"), HasSubstr(",min=2048"));
  // Shares of the prompt have a break-even length of their own.
  EXPECT_EQ(reason("sliminfer:keep=0.5", 4095), "4095 prompt tokens are below its break-even of 4096");
  EXPECT_EQ(reason("sliminfer:keep=0.5", 4096), "");
  // Decode attends less than prefill kept.
  EXPECT_EQ(reason("sliminfer:keep=2048,decode_keep=1024", 2000), "");
  // Two blocks, of which none can go; of three one can, where the last is whole.
  const std::string half = "sliminfer:keep=0.5,min=0";
  EXPECT_EQ(reason(half, 52), "52 prompt tokens are in blocks of 64 that always stay");
  EXPECT_EQ(reason(half, 128), "128 prompt tokens are in blocks of 64 that always stay");
  EXPECT_EQ(reason(half, 191), "191 prompt tokens are in blocks of 64 that always stay");
  EXPECT_EQ(reason(half, 192), "");
}

TEST(SlimInferMethod, StartAndScore) {
  const MethodInfo method = SlimInferMethod();
  EXPECT_THAT(SettingsOf(method, "sliminfer:start=5"),
              HasSubstr("layers=5/15/25,start=5,keep=8192/4096/2048,"));
  EXPECT_THAT(SettingsOf(method, "sliminfer:start=15,keep=0.5"), HasSubstr("layers=15/25,start=15,"));
  EXPECT_THAT(SettingsOf(method, "sliminfer:score=avg"),
              HasSubstr("block=64,unit=64,window=4,last=64,score=avg,"));
  EXPECT_THAT(SettingsOf(method, "sliminfer:score=max,block=32"),
              HasSubstr("block=32,unit=32,window=4,last=64,score=max,"));
  EXPECT_THAT(RefusalOf(method, "sliminfer:score=mean"), HasSubstr("it can be units, avg, max"));
  EXPECT_THAT(RefusalOf(method, "sliminfer:start=32"), HasSubstr("start=32"));
  const auto pool = [&](const char* spec) {
    return MakeMethod(method, spec).policy->NeedsAt(Phase::kPrefill, 9).unit_scores;
  };
  EXPECT_EQ(pool("sliminfer"), (std::vector<Needs::Units>{{4, 8, KeyPool::kMean}}));
  EXPECT_EQ(pool("sliminfer:score=avg"), (std::vector<Needs::Units>{{4, 64, KeyPool::kMean}}));
  EXPECT_EQ(pool("sliminfer:score=max"), (std::vector<Needs::Units>{{4, 64, KeyPool::kMax}}));
}

TEST(SlimInferPolicy, MassIsSummedOverLayersAndSpreadOverSentences) {
  SlimInferConfig config{
      .layers = {10}, .keep = {12}, .block = 4, .unit = 2, .last = 1, .score = SlimInferScore::kMass};
  config.scores = {.queries = 1, .sum = 2};
  const auto kept = [&](SlimInferPolicy& slim) {
    Scene first(20, 8);
    std::vector<float> mass(20);
    mass[5] = 3;
    first.Mass(1, mass);
    EXPECT_TRUE(slim.AfterAttention(first.seen, *first.be).IsAll());
    Scene second(20, 9);
    mass.assign(20, 0);
    mass[9] = 2;
    mass[5] = 1;
    mass[13] = 3.5f;
    second.Mass(1, mass);
    return Blocks(slim.AfterAttention(second.seen, *second.be));
  };
  SlimInferPolicy sum(config);
  EXPECT_TRUE(sum.NeedsAt(Phase::kPrefill, 7).empty());
  EXPECT_FALSE(sum.NeedsAt(Phase::kPrefill, 8).empty());
  EXPECT_EQ(kept(sum), (Rows{0, 1, 4}));
  // Rows 9 to 13 are one sentence: of two blocks that tie the earlier stays.
  config.scores.sum = 1;
  config.scores.sentences = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2});
  SlimInferPolicy whole(config);
  Scene scene(20, 9);
  std::vector<float> mass(20);
  mass[5] = 1;
  mass[13] = 3.5f;
  scene.Mass(1, mass);
  EXPECT_EQ(Blocks(whole.AfterAttention(scene.seen, *scene.be)), (Rows{0, 2, 4}));
}

}  // namespace
}  // namespace coppice
