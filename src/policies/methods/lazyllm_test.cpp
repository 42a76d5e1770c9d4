#include "policies/methods/lazyllm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;
const Needs::Mass kAsked{.queries = 1};

Rows PositionsOf(const TokenSet& set, std::span<const int32_t> positions) {
  EXPECT_EQ(set.universe(), static_cast<int64_t>(positions.size()));
  Rows answer;
  for (const int32_t row : set.ToRows()) answer.push_back(positions[static_cast<size_t>(row)]);
  return answer;
}

// Which positions stay, asked before `layer` of a prefill over `positions`.
Rows Prefill(LazyLlmPolicy& lazy, int layer, const Rows& positions, const std::vector<float>& mass) {
  Scene scene(positions, positions.back() + 1, layer);
  scene.Mass(1, mass);
  return PositionsOf(lazy.BeforeLayer(scene.seen, *scene.be), positions);
}

// Which are attended from `layer` on, where `attended` were before it; candidates are these and `more`, and
// `waiting` of them are parked.
Rows DecodeStep(LazyLlmPolicy& lazy, int layer, int64_t prompt, const Rows& attended,
                const std::vector<float>& mass, const Rows& more = {}, const Rows& waiting = {}) {
  Scene scene(attended, prompt, layer);
  scene.seen.phase = Phase::kDecode;
  scene.Mass(1, mass);
  Rows candidates;
  std::merge(attended.begin(), attended.end(), more.begin(), more.end(), std::back_inserter(candidates));
  std::vector<uint8_t> parked;
  for (const int32_t p : candidates)
    parked.push_back(std::find(waiting.begin(), waiting.end(), p) != waiting.end());
  return PositionsOf(lazy.Attend(scene.seen, {candidates, parked}, *scene.be), candidates);
}

// By hand: N = 8, L = 6, stages at 2 and 4, keep .5. The depths follow from the sets.
TEST(LazyLlmPolicy, WorkedExample) {
  LazyLlmPolicy lazy({.layers = {2, 4}, .keep = {0.5, 0.5}});
  std::vector<int> depth(9, 6);
  const auto leaves = [&](const Rows& before, const Rows& after, int layer) {
    for (const int32_t p : before) {
      const bool stays = std::binary_search(after.begin(), after.end(), p);
      if (!stays) depth[static_cast<size_t>(p)] = layer;
    }
  };
  Rows all(8);
  std::iota(all.begin(), all.end(), 0);
  const Rows a2 = Prefill(lazy, 2, all, {.30f, .01f, .05f, .20f, .02f, .15f, .07f, .20f});
  EXPECT_EQ(a2, (Rows{0, 3, 5, 7}));
  leaves(all, a2, 2);
  const Rows a4 = Prefill(lazy, 4, a2, {.1f, .5f, .2f, .2f});
  EXPECT_EQ(a4, (Rows{3, 7}));
  leaves(a2, a4, 4);
  EXPECT_EQ(depth, (std::vector<int>{4, 2, 2, 6, 2, 4, 2, 6, 6}));

  // Token 8 is generated. Every token has the two lowest layers.
  all.push_back(8);
  const Rows b2 = DecodeStep(lazy, 2, 8, all, {.02f, .01f, .30f, .20f, .03f, .04f, .15f, .10f, .15f});
  EXPECT_EQ(b2, (Rows{2, 3, 6, 7, 8}));
  const Rows b4 = DecodeStep(lazy, 4, 8, b2, {.1f, .4f, .3f, .05f, .15f}, {0, 5});  // 0 and 5 wait at layer 4
  EXPECT_EQ(b4, (Rows{3, 6, 8}));
  for (const int32_t p : b2) depth[static_cast<size_t>(p)] = std::max(depth[static_cast<size_t>(p)], 4);
  for (const int32_t p : b4) depth[static_cast<size_t>(p)] = 6;
  EXPECT_EQ(depth, (std::vector<int>{4, 2, 4, 6, 2, 4, 6, 6, 6}));
}

TEST(LazyLlmPolicy, CountsRoundUpAndNeverReachZero) {
  for (int64_t n = 1; n <= 9; ++n) {
    Rows all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    const std::vector<float> mass(static_cast<size_t>(n), 0.1f);
    LazyLlmPolicy half({.layers = {3}, .keep = {0.5}});
    EXPECT_EQ(Prefill(half, 3, all, mass).size(), static_cast<size_t>((n + 1) / 2)) << n;
    LazyLlmPolicy least({.layers = {3}, .keep = {1e-6}});
    EXPECT_EQ(Prefill(least, 3, all, mass), Rows{static_cast<int32_t>(n) - 1}) << n;  // T-LZ7
    LazyLlmPolicy tenths({.layers = {3}, .keep = {0.3}});
    EXPECT_EQ(Prefill(tenths, 3, all, mass).size(), static_cast<size_t>((3 * n + 9) / 10)) << n;
  }
}

TEST(LazyLlmPolicy, InDecodeThePromptIsCountedAndTheGeneratedStay) {
  LazyLlmPolicy lazy({.layers = {3}, .keep = {0.5}});
  // Three of the five prompt tokens stay; the last of them may be dropped. The generated tokens 10, 11 and 12
  // are not counted and all stay.
  EXPECT_EQ(DecodeStep(lazy, 3, 10, {1, 2, 5, 8, 9, 10, 11, 12}, {.5f, .1f, .2f, .3f, 0, 0, 0, .9f}),
            (Rows{1, 5, 8, 10, 11, 12}));
  // Ties go to the earlier.
  EXPECT_EQ(DecodeStep(lazy, 3, 10, {1, 2, 5, 8, 9, 10}, std::vector<float>(6, 1)), (Rows{1, 2, 5, 10}));
  // Candidates that were not attended in the layer before are not chosen, wherever they stand.
  EXPECT_EQ(DecodeStep(lazy, 3, 10, {2, 5, 8, 10}, {1, 3, 2, 0}, {0, 1, 6, 9}), (Rows{5, 8, 10}));
  LazyLlmPolicy sink({.layers = {3}, .keep = {0.5}, .sink = 3});
  EXPECT_EQ(DecodeStep(sink, 3, 10, {1, 2, 5, 8, 10}, {0, 0, 3, 2, 0}), (Rows{1, 2, 10}));
  LazyLlmPolicy least({.layers = {3}, .keep = {1e-6}});
  EXPECT_EQ(DecodeStep(least, 3, 10, {2, 5, 10}, {1, 2, 3}), (Rows{5, 10}));
  EXPECT_EQ(DecodeStep(least, 3, 10, {10, 11}, {1, 2}), (Rows{10, 11}));  // no prompt token is there
}

TEST(LazyLlmPolicy, TheCapBoundsWhatComesBackToTheBest) {
  const Rows attended = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};  // 8 and 9 are generated
  const std::vector<float> mass = {9, 1, 8, 2, 7, 3, 6, 4, 0, 0};
  const Rows waiting = {0, 2, 3, 4, 7};
  const auto with_cap = [&](int cap, const std::vector<float>& scores) {
    LazyLlmPolicy lazy({.layers = {3}, .keep = {0.625}, .revive_cap = cap});
    return DecodeStep(lazy, 3, 8, attended, scores, {}, waiting);
  };
  EXPECT_EQ(with_cap(0, mass), (Rows{0, 2, 4, 6, 7, 8, 9}));  // four of them come back
  EXPECT_EQ(with_cap(4, mass), (Rows{0, 2, 4, 6, 7, 8, 9}));
  EXPECT_EQ(with_cap(3, mass), (Rows{0, 2, 4, 6, 8, 9}));
  EXPECT_EQ(with_cap(1, mass), (Rows{0, 6, 8, 9}));  // 6 has its keys: the cap does not count it
  EXPECT_EQ(with_cap(2, std::vector<float>(10, 1)), (Rows{0, 1, 2, 8, 9}));  // ties: the earlier
  // Without a score none comes back.
  EXPECT_EQ(with_cap(1, std::vector<float>(10, kNan)), (Rows{1, 8, 9}));
}

TEST(LazyLlmPolicy, TokensComeBackEveryFewSteps) {
  const std::vector<float> mass = {9, 1, 8, 2, 7, 3, 6, 4};
  const Rows waiting = {0, 2, 3, 4, 7};
  for (const int every : {1, 3}) {
    LazyLlmPolicy lazy({.layers = {3}, .keep = {0.625}, .revive_every = every});
    Rows attended = {0, 1, 2, 3, 4, 5, 6, 7};
    std::vector<float> scores = mass;
    for (int32_t step = 0; step < 7; ++step) {
      attended.push_back(8 + step);
      scores.push_back(0);
      Rows expected = {6};  // of the best five it alone has keys
      if (step % every == 0) expected = {0, 2, 4, 6, 7};
      for (int32_t p = 8; p <= 8 + step; ++p) expected.push_back(p);
      EXPECT_EQ(DecodeStep(lazy, 3, 8, attended, scores, {}, waiting), expected)
          << every << ", step " << step;
    }
  }
}

TEST(LazyLlmPolicy, SinksAndTheLastStandInsideTheCount) {
  LazyLlmPolicy lazy({.layers = {3}, .keep = {0.5}, .sink = 2});
  EXPECT_EQ(Prefill(lazy, 3, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 9, 8, 7, 6, 0}), (Rows{0, 1, 3, 7}));
  // A limit on positions: of the rows at 1, 4, 5, 9 one lies below 2.
  EXPECT_EQ(Prefill(lazy, 3, {1, 4, 5, 9}, {0, 3, 2, 0}), (Rows{1, 9}));
}

TEST(LazyLlmPolicy, StrangeScores) {
  LazyLlmPolicy lazy({.layers = {3}, .keep = {0.5}});
  EXPECT_EQ(Prefill(lazy, 3, {0, 1, 2, 3}, {kNan, kNan, kNan, kNan}), (Rows{0, 3}));
  EXPECT_EQ(Prefill(lazy, 3, {0, 1, 2, 3}, {kInf, kNan, kInf, kNan}), (Rows{0, 3}));
  EXPECT_EQ(Prefill(lazy, 3, {0, 1, 2, 3}, {kNan, -kInf, kNan, 0}), (Rows{1, 3}));
  EXPECT_EQ(DecodeStep(lazy, 3, 4, {0, 1, 2, 3, 4}, {kNan, kNan, 1, kNan, kNan}), (Rows{0, 2, 4}));
}

// T-LZ6 over random scores: what stays was there.
TEST(LazyLlmPolicy, StagesNest) {
  LazyLlmPolicy lazy({.layers = {1, 2, 31}, .keep = {0.7, 0.5, 0.3}});
  uint32_t state = 7;
  const auto scores = [&](size_t n) {
    std::vector<float> s(n);
    for (float& x : s) x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 24);  // many ties
    return s;
  };
  Rows there(333);
  std::iota(there.begin(), there.end(), 0);
  for (const int layer : {1, 2, 31}) {
    const Rows next = Prefill(lazy, layer, there, scores(there.size()));
    EXPECT_TRUE(std::includes(there.begin(), there.end(), next.begin(), next.end()));
    EXPECT_EQ(next.back(), 332);
    there = next;
  }
  EXPECT_EQ(there.size(), 36u);  // 333 -> 234 -> 117 -> 36
}

TEST(LazyLlmPolicy, ActsAtItsStagesInBothPhases) {
  LazyLlmPolicy lazy({.layers = {1, 31}, .keep = {0.5, 0.5}, .mask = ReviveMask::kCausal});
  for (int layer = 0; layer < 32; ++layer) {
    const bool observes = layer == 0 || layer == 30;
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      EXPECT_EQ(lazy.NeedsAt(phase, layer).masses,
                observes ? std::vector{kAsked} : std::vector<Needs::Mass>{});
    }
    const bool acts = layer == 1 || layer == 31;
    EXPECT_EQ(lazy.AttendsAt(layer), acts ? DecodePoint::kBeforeLayer : DecodePoint::kNone) << layer;
    Scene scene(10, layer);
    scene.Mass(1, std::vector<float>(10, 1));
    EXPECT_EQ(lazy.BeforeLayer(scene.seen, *scene.be).size(), acts ? 5 : 10) << layer;
    EXPECT_TRUE(lazy.AfterAttention(scene.seen, *scene.be).IsAll());
    EXPECT_TRUE(lazy.RunFfn(scene.seen, *scene.be).IsAll());
  }
  EXPECT_TRUE(lazy.Facts().parks);
  EXPECT_EQ(lazy.Facts().revive_mask, ReviveMask::kCausal);
}

// The last two layers before each stage; rows leave at layer 2, and their scores with them.
TEST(LazyLlmPolicy, ScoresAreSummedOverLayers) {
  LazyLlmPolicy lazy({.layers = {2, 5}, .keep = {0.5, 0.5}, .scores = {.queries = 1, .sum = 3}});
  for (int layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(lazy.NeedsAt(Phase::kPrefill, layer).empty(), layer > 4) << layer;
    EXPECT_EQ(lazy.NeedsAt(Phase::kDecode, layer).empty(), layer != 1 && layer != 4) << layer;
  }
  EXPECT_EQ(Prefill(lazy, 1, {0, 1, 2, 3, 4, 5}, {9, 5, 0, 0, 4, 0}), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Prefill(lazy, 2, {0, 1, 2, 3, 4, 5}, {0, 0, 7, 0, 4, 0}), (Rows{0, 4, 5}));  // 9 5 7 0 8 0
  EXPECT_EQ(Prefill(lazy, 3, {0, 4, 5}, {2, 1, 0}), (Rows{0, 4, 5}));
  // Another method drops row 5 here. Layer 0 and layer 1 no longer count: 2 + 0 + 1 against 1 + 1 + 2.
  EXPECT_EQ(Prefill(lazy, 4, {0, 4, 6, 7}, {0, 1, 3, 0}), (Rows{0, 4, 6, 7}));
  EXPECT_EQ(Prefill(lazy, 5, {0, 4, 6, 7}, {1, 2, 0, 0}), (Rows{4, 7}));
  // In decode the step's own scores rank.
  EXPECT_EQ(DecodeStep(lazy, 5, 6, {0, 4, 6}, {3, 1, 0}), (Rows{0, 6}));
}

// T-LZ5: a stage that keeps everything observes nothing and is not asked.
TEST(LazyLlmPolicy, KeepOneIsDense) {
  LazyLlmPolicy lazy({.layers = {2, 4}, .keep = {1, 0.5}});
  EXPECT_TRUE(lazy.NeedsAt(Phase::kPrefill, 1).empty());
  EXPECT_FALSE(lazy.NeedsAt(Phase::kPrefill, 3).empty());
  EXPECT_EQ(lazy.AttendsAt(2), DecodePoint::kNone);
  Scene scene(10, 2);
  EXPECT_TRUE(lazy.BeforeLayer(scene.seen, *scene.be).IsAll());
}

TEST(LazyLlmPolicy, WithoutRevivalItActsInPrefillAlone) {
  LazyLlmPolicy lazy({.layers = {2, 4}, .keep = {0.5, 0.5}, .revive = false});
  EXPECT_FALSE(lazy.Facts().parks);
  EXPECT_FALSE(lazy.NeedsAt(Phase::kPrefill, 1).empty());
  EXPECT_TRUE(lazy.NeedsAt(Phase::kDecode, 1).empty());
  EXPECT_EQ(lazy.AttendsAt(2), DecodePoint::kNone);
  EXPECT_EQ(Prefill(lazy, 2, {0, 1, 2, 3}, {0, 2, 1, 0}), (Rows{1, 3}));
}

ModelShape Qwen05B() {
  ModelShape s = Llama8B();
  s.architecture = "qwen2";
  s.hidden = 896;
  s.layers.assign(24, {.heads = 14, .kv_heads = 2, .head_dim = 64});
  return s;
}

TEST(LazyLlmMethod, Settings) {
  const MethodInfo method = LazyLlmMethod();
  EXPECT_EQ(
      SettingsOf(method, "lazyllm"),
      "lazyllm:preset=default,layers=10/20/30,keep=0.5/0.5/0.5,sink=0,revive=aux,revive_mask=append,"
      "revive_cap=0,revive_every=1,strict_memory=1,queries=1,ask=end,pool=mean,skip_sink=0,widen=0,sum=1,"
      "whole=none,min=2048");
  EXPECT_THAT(SettingsOf(method, "lazyllm", Qwen05B()), HasSubstr("layers=8/15/20,keep=0.5/0.5/0.5,"));
  EXPECT_THAT(SettingsOf(method, "lazyllm:preset=paper", Qwen05B()),
              HasSubstr("layers=8/15/23,keep=0.5/0.5/0.5,sink=0,revive=aux,revive_mask=append,"
                        "revive_cap=0,revive_every=1,strict_memory=0"));
  EXPECT_THAT(SettingsOf(method, "lazyllm:preset=paper,strict_memory=1", Qwen05B()),
              HasSubstr("layers=8/15/20,"));
  // Stages that would coincide with an earlier one go, and their keep with them.
  EXPECT_THAT(SettingsOf(method, "lazyllm:layers=5/22/23,keep=.5/.4/.3", Qwen05B()),
              HasSubstr("layers=5/20,keep=0.5/0.4,"));
  EXPECT_THAT(SettingsOf(method, "lazyllm:layers=22/23,revive=none", Qwen05B()), HasSubstr("layers=22/23,"));
  EXPECT_THAT(SettingsOf(method, "lazyllm:layers=1/31,keep=0.25,strict_memory=0"),
              HasSubstr("layers=1/31,keep=0.25/0.25,"));
  ModelShape bloom = Llama8B();
  bloom.alibi = true;
  EXPECT_THAT(SettingsOf(method, "lazyllm", bloom), HasSubstr("revive_mask=causal"));
  EXPECT_THAT(RefusalOf(method, "lazyllm:revive_mask=append", bloom), HasSubstr("ALiBi"));
  EXPECT_EQ(MakeMethod(method, "lazyllm", bloom).policy->Facts().revive_mask, ReviveMask::kCausal);
}

TEST(LazyLlmMethod, StandsAside) {
  const MethodInfo method = LazyLlmMethod();
  EXPECT_EQ(MakeMethod(method, "lazyllm", Llama8B(), 2047).reason,
            "2047 prompt tokens are below its break-even of 2048");
  EXPECT_NE(MakeMethod(method, "lazyllm", Llama8B(), 2048).policy, nullptr);
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_THAT(MakeMethod(method, "lazyllm", windowed, 4097).reason, HasSubstr("sliding window of 4096"));
  EXPECT_EQ(MakeMethod(method, "lazyllm", windowed, 4096).reason, "");
  ModelShape one = Llama8B();
  one.layers.resize(1);
  EXPECT_EQ(MakeMethod(method, "lazyllm:min=0", one).reason, "1 layers leave no stage to prune at");
  EXPECT_THAT(SettingsOf(method, "lazyllm", one), HasSubstr("layers=none,keep=0.5,"));
  // So few kv heads that a parked state never pays.
  ModelShape narrow = Qwen05B();
  narrow.layers.resize(4);
  EXPECT_EQ(MakeMethod(method, "lazyllm:min=0,keep=.5/.4", narrow).policy, nullptr);
  EXPECT_THAT(SettingsOf(method, "lazyllm:keep=.5/.4", narrow), HasSubstr("layers=none,keep=0.5,"));
}

TEST(LazyLlmMethod, Refuses) {
  const MethodInfo method = LazyLlmMethod();
  const std::pair<const char*, const char*> bad[] = {
      {"lazyllm:layers=0", "'0' is not a whole number from 1 to 31"},
      {"lazyllm:layers=32", "'32' is not"},
      {"lazyllm:layers=5/5", "layers=5/5 must ascend"},
      {"lazyllm:keep=0", "'0' is not a number"},
      {"lazyllm:keep=1.1", "'1.1' is not a number"},
      {"lazyllm:keep=nan", "'nan' is not a number"},
      {"lazyllm:keep=.5/.5", "keep has 2 values for 3 layers"},
      {"lazyllm:sink=-1", "sink=-1"},
      {"lazyllm:revive=yes", "revive=yes is not there; it can be aux, none"},
      {"lazyllm:revive_mask=none", "it can be append, causal"},
      {"lazyllm:strict_memory=2", "strict_memory=2"},
      {"lazyllm:preset=low", "it can be default, paper"},
      {"lazyllm:min=-1", "min=-1"},
      {"lazyllm:eta=1", "unknown key 'eta'"},
  };
  for (const auto& [spec, part] : bad) EXPECT_THAT(RefusalOf(method, spec), HasSubstr(part)) << spec;
}

}  // namespace
}  // namespace coppice
