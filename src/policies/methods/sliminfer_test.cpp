#include "policies/methods/sliminfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using testing::HasSubstr;
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

Rows WholeBlocks(const TokenSet& set) {  // and that each is whole
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
  EXPECT_EQ(WholeBlocks(Answer(24, 8, units)), (Rows{0, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 12, units)), (Rows{0, 3, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 16, units)), (Rows{0, 1, 3, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 19, units)), (Rows{0, 1, 3, 5}));  // T-SL4: whole blocks within the budget
  EXPECT_EQ(WholeBlocks(Answer(24, 20, units)), (Rows{0, 1, 3, 4, 5}));
  EXPECT_TRUE(Answer(24, 24, units).IsAll());  // T-SL6
  EXPECT_TRUE(Answer(24, 1000, units).IsAll());
}

TEST(SlimInferPolicy, BlockZeroAndTheTailStandAboveTheBudget) {
  const std::vector<float> units(12, 1.0f);
  for (const int64_t keep : {1, 3, 4, 5, 7, 8})
    EXPECT_EQ(WholeBlocks(Answer(24, keep, units)), (Rows{0, 5})) << keep;
}

TEST(SlimInferPolicy, PartialTail) {
  // 22 rows: the tail has two rows and one unit; 21 rows: one row, a unit of one.
  EXPECT_EQ(WholeBlocks(Answer(22, 12, {0, 0, 1, 1, 2, 2, 9, 9, 3, 3, -5})), (Rows{0, 3, 5}));
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
  EXPECT_EQ(WholeBlocks(Answer(24, 16, std::vector<float>(12, 1.0f))), (Rows{0, 1, 2, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 12, {0, 0, 1, 1, 7, 1, 1, 7, 7, 7, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 12, {0, 0, -0.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0})), (Rows{0, 1, 5}));
}

// T-SL2 whatever the scores are.
TEST(SlimInferPolicy, StrangeScoresKeepTheEnds) {
  for (const float x : {-kInf, kInf, kNan}) {
    EXPECT_EQ(WholeBlocks(Answer(24, 8, std::vector<float>(12, x))), (Rows{0, 5})) << x;
    const Rows three = WholeBlocks(Answer(24, 12, std::vector<float>(12, x)));
    ASSERT_EQ(three.size(), 3u) << x;
    EXPECT_EQ(three.front(), 0) << x;
    EXPECT_EQ(three.back(), 5) << x;
  }
  EXPECT_EQ(WholeBlocks(Answer(24, 12, {0, 0, kNan, kNan, -kInf, 3, 1, 1, kNan, kNan, 0, 0})),
            (Rows{0, 2, 5}));
}

// A unit without a number does not hide the block's other unit, whichever of the two it is.
TEST(SlimInferPolicy, ANanIsTheWorstUnitOfItsBlock) {
  EXPECT_EQ(WholeBlocks(Answer(24, 12, {0, 0, 1, 1, 5, kNan, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
  EXPECT_EQ(WholeBlocks(Answer(24, 12, {0, 0, 1, 1, kNan, 5, 2, 2, 3, 3, 0, 0})), (Rows{0, 2, 5}));
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
    return WholeBlocks(slim.AfterAttention(second.seen, *second.be));
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
  EXPECT_EQ(WholeBlocks(whole.AfterAttention(scene.seen, *scene.be)), (Rows{0, 2, 4}));
}

}  // namespace
}  // namespace coppice
