#include "policies/methods/coppice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "policies/method_test_support.h"
#include "policy_scene.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<int32_t>;

CoppiceConfig OneStage(double keep, int widen) {
  return {.stages = {{.layer = 2,
                      .keep = keep,
                      .scores = {.queries = 4, .pool = MassPool::kMaximum, .widen = widen}}},
          .sink = 1,
          .last = 2,
          .floor = 0,
          .revive_mass = 0.5,
          .revive_cap = 2};
}

Rows Prefill(CoppicePolicy& policy, const std::vector<float>& mass) {
  Scene scene(static_cast<int64_t>(mass.size()), 2);
  scene.seen.prompt_tokens = static_cast<int64_t>(mass.size());
  scene.Mass({.queries = 4, .pool = MassPool::kMaximum}, {mass});
  return policy.BeforeLayer(scene.seen, *scene.be).ToRows();
}

TEST(CoppicePolicy, KeepsTheBestWithTheirNeighbours) {
  // 12 tokens, half stay: the sink, the last two, and the best three. Without neighbours 5, 7 and 9 are best.
  const std::vector<float> mass = {0, 0, .1f, 0, 0, 5, 0, 2, 0, 3, 0, 0};
  CoppicePolicy alone(OneStage(0.5, 0));
  EXPECT_THAT(Prefill(alone, mass), ElementsAre(0, 5, 7, 9, 10, 11));
  CoppicePolicy wide(OneStage(0.5, 1));
  EXPECT_THAT(Prefill(wide, mass), ElementsAre(0, 4, 5, 6, 10, 11));
}

// Half of 12 tokens is six; the floor keeps eight, and never more than there are.
TEST(CoppicePolicy, TheFloorKeepsMoreThanTheShare) {
  const std::vector<float> mass = {0, 0, .1f, 0, 0, 5, 0, 2, 0, 3, 0, 0};
  CoppiceConfig config = OneStage(0.5, 0);
  config.floor = 8;
  CoppicePolicy eight(config);
  EXPECT_THAT(Prefill(eight, mass), ElementsAre(0, 1, 2, 5, 7, 9, 10, 11));
  config.floor = 5;
  CoppicePolicy below(config);
  EXPECT_THAT(Prefill(below, mass), ElementsAre(0, 5, 7, 9, 10, 11)) << "the share is more";
  config.floor = 100;
  CoppicePolicy all(config);
  EXPECT_EQ(Prefill(all, mass).size(), mass.size());
}

CoppiceConfig ByMass(double keep, double mass, int widen = 0, int64_t floor = 0) {
  CoppiceConfig config = OneStage(keep, widen);
  config.stages.front().mass = mass;
  config.floor = floor;
  return config;
}

Rows PrefillByMass(const CoppiceConfig& config, const std::vector<float>& mass) {
  CoppicePolicy policy(config);
  return Prefill(policy, mass);
}

// 16 tokens: the sink, four places of equal mass, the last two. A fixed quarter has room for one place.
TEST(CoppicePolicy, PlacesOfEqualMassAllStay) {
  const std::vector<float> mass = {0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 0, 0};
  EXPECT_THAT(PrefillByMass(ByMass(0.25, 1), mass), ElementsAre(0, 2, 14, 15));
  EXPECT_THAT(PrefillByMass(ByMass(1, 0.9), mass), ElementsAre(0, 2, 5, 8, 11, 14, 15));
  EXPECT_THAT(PrefillByMass(ByMass(1, 0.5), mass), ElementsAre(0, 2, 5, 14, 15)) << "ties go to the earlier";
  EXPECT_THAT(PrefillByMass(ByMass(1, 0.99, 1), mass),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15))
      << "each with its neighbours";
}

TEST(CoppicePolicy, OnePlaceKeepsNoMoreThanTheFloor) {
  const std::vector<float> mass = {0, 0, .01f, 0, .01f, 5, 0, .02f, 0, .01f, 0, 0};
  EXPECT_THAT(PrefillByMass(ByMass(0.75, 0.9), mass), ElementsAre(0, 5, 10, 11));
  EXPECT_THAT(PrefillByMass(ByMass(0.75, 0.9, 0, 6), mass), ElementsAre(0, 2, 5, 7, 10, 11));
  EXPECT_EQ(PrefillByMass(ByMass(0.75, 0.9, 0, 100), mass).size(), mass.size());
}

TEST(CoppicePolicy, TheShareIsTheMostThatMassKeeps) {
  const std::vector<float> flat(12, 1);
  EXPECT_EQ(PrefillByMass(ByMass(0.5, 0.9), flat).size(), 6u);
  EXPECT_EQ(PrefillByMass(ByMass(0.75, 0.5), flat).size(), 3u + 5u) << "half of the nine that may go";
  EXPECT_EQ(PrefillByMass(ByMass(0.1, 0.9, 0, 8), flat).size(), 8u) << "the floor is above the share";
}

// Nothing at the prompt's ends counts as mass: whatever they hold, half of the middle's stays.
TEST(CoppicePolicy, TokensThatStayAnywayHoldNoMass) {
  for (const float at_ends : {0.f, 1000.f}) {
    const std::vector<float> mass = {at_ends, 0, 2, 0, 1, 0, 1, 0, 0, 0, at_ends, at_ends};
    EXPECT_THAT(PrefillByMass(ByMass(1, 0.6), mass), ElementsAre(0, 2, 4, 10, 11)) << at_ends;
  }
}

TEST(CoppicePolicy, WithoutMassTheShareStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(PrefillByMass(ByMass(0.5, 0.3), std::vector<float>(12, 0)), ElementsAre(0, 1, 2, 3, 10, 11));
  EXPECT_THAT(PrefillByMass(ByMass(0.5, 0.3), std::vector<float>(12, nan)), ElementsAre(0, 1, 2, 3, 10, 11));
  std::vector<float> one(12, nan);
  one[7] = 1;
  EXPECT_THAT(PrefillByMass(ByMass(0.5, 0.3), one), ElementsAre(0, 7, 10, 11));
  one[7] = std::numeric_limits<float>::infinity();
  one[5] = 1;
  EXPECT_THAT(PrefillByMass(ByMass(0.5, 0.3), one), ElementsAre(0, 7, 10, 11));
}

TEST(CoppicePolicy, TheQuestionsEndStays) {
  CoppiceConfig config = OneStage(0.25, 0);
  config.question = {{1, 2}, {3, 5}};
  CoppicePolicy policy(config);
  EXPECT_THAT(Prefill(policy, std::vector<float>(12, 1)), ElementsAre(0, 3, 4, 10, 11))
      << "two of it, as many as of the prompt, and more than the budget";
}

TEST(CoppicePolicy, KeepOneIsDense) {
  CoppicePolicy policy(OneStage(1, 3));
  EXPECT_EQ(policy.FirstChoice(), kNoPoint);
  EXPECT_TRUE(policy.NeedsAt(Phase::kPrefill, 1).empty());
  EXPECT_EQ(policy.AttendsAt(2), DecodePoint::kNone);
}

// The stage before layer 2 ranks by layers 0 and 1; a second stage ranks by layer 2 alone.
TEST(CoppicePolicy, AStageSumsItsLayers) {
  CoppiceConfig config = OneStage(0.5, 0);
  config.stages.front().scores.sum = 2;
  config.stages.push_back({.layer = 3, .keep = 0.4, .scores = {.queries = 1}});
  CoppicePolicy policy(config);
  const Needs::Mass of{.queries = 4, .pool = MassPool::kMaximum};
  const Needs::Mass last{.queries = 1};
  EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, 0).masses, std::vector{of});
  EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, 1).masses, std::vector{of});
  EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, 2).masses, std::vector{last});
  EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, 0).empty()) << "in decode the last layer alone";
  EXPECT_FALSE(policy.NeedsAt(Phase::kDecode, 1).empty());

  Scene first(10, 1);
  first.seen.prompt_tokens = 10;
  first.Mass(of, {{0, 5, 0, 4, 0, 3, 0, 0, 0, 0}});
  EXPECT_TRUE(policy.BeforeLayer(first.seen, *first.be).IsAll());
  EXPECT_THAT(Prefill(policy, {0, 0, 1, 2, 0, 4, 0, 0, 0, 0}), ElementsAre(0, 3, 5, 8, 9));
  Scene second({0, 3, 5, 8, 9}, 10, 3);
  second.Mass(last, {{0, 1, 2, 0, 0}});
  EXPECT_THAT(policy.BeforeLayer(second.seen, *second.be).ToRows(), ElementsAre(0, 2, 3, 4));
}

TEST(CoppicePolicy, ASentenceStaysWhole) {
  CoppiceConfig config = OneStage(0.5, 0);
  config.stages.front().scores.sentences =
      std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3});
  CoppicePolicy policy(config);
  EXPECT_THAT(Prefill(policy, {0, 3, 0, 0, 0, 5, 0, 2, 0, 4, 0, 0}), ElementsAre(0, 3, 4, 5, 10, 11));
}

// Candidates 0, 3 and 5 have keys; 1, 2 and 4 are parked; 6 is the current token.
Rows DecodeRows(CoppicePolicy& policy, const std::vector<float>& mass) {
  Scene scene({0, 1, 2, 3, 4, 5, 6}, 6, 2);
  scene.seen.phase = Phase::kDecode;
  scene.Mass({.queries = 1, .pool = MassPool::kMaximum}, {mass});
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> parked = {0, 1, 1, 0, 1, 0, 0};
  return policy.Attend(scene.seen, {positions, parked}, *scene.be).ToRows();
}

TEST(CoppicePolicy, ParkedTokensReturnWhereTheyHoldTheAttention) {
  CoppicePolicy policy(OneStage(0.5, 0));
  EXPECT_THAT(DecodeRows(policy, {1, 1, 1, 1, 1, 1, 1}), ElementsAre(0, 3, 5, 6)) << "three of seven";
  EXPECT_THAT(DecodeRows(policy, {1, 2, 0, 1, 3, 1, 0}), ElementsAre(0, 1, 3, 4, 5, 6)) << "five of eight";
  EXPECT_THAT(DecodeRows(policy, {1, 2, 4, 1, 3, 1, 0}), ElementsAre(0, 2, 3, 4, 5, 6)) << "no more than two";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(DecodeRows(policy, {1, nan, 4, 1, 3, 1, 0}), ElementsAre(0, 3, 5, 6));
}

TEST(CoppiceMethod, Settings) {
  const MethodInfo method = CoppiceMethod();
  const std::string rest =
      ",skip_sink=4,sum=1/1/1,whole=none/none/none,floor=256,sink=4,last=64,revive=aux,revive_mass=0.3,"
      "revive_cap=32,min=1024";
  EXPECT_EQ(SettingsOf(method, "coppice"),
            "coppice:layers=9/16/26,keep=0.5/0.4/0.3,mass=1/1/1,queries=48/48/48,pool=max/max/max,"
            "widen=48/48/48,ask=question/question/question" +
                rest);
  EXPECT_EQ(SettingsOf(method, "coppice:keep=0.25/0.1/0.05"),
            "coppice:layers=9/16/26,keep=0.25/0.1/0.05,mass=1/1/1,queries=16/16/1,pool=max/max/mean,"
            "widen=48/48/48,ask=question/question/end" +
                rest)
      << "fixed shares mean what they always meant";
  EXPECT_THAT(SettingsOf(method, "coppice:layers=12,keep=0.2"),
              HasSubstr("layers=12,keep=0.2,mass=1,queries=1,pool=mean,widen=48,ask=end,"));
  EXPECT_THAT(SettingsOf(method, "coppice:keep=0.4/0.2/0.1,mass=0.9/0.8/0.7"),
              HasSubstr("keep=0.4/0.2/0.1,mass=0.9/0.8/0.7,queries=48/48/48,pool=max/max/max,"));
  EXPECT_THAT(RefusalOf(method, "coppice:mass=0"), HasSubstr("mass"));
  EXPECT_THAT(RefusalOf(method, "coppice:mass=1.5"), HasSubstr("mass"));
}

// The second of the layers' defaults is for fixed shares.
TEST(CoppiceMethod, FixedSharesKeepTheirLayers) {
  ModelShape shape = Llama8B();
  shape.layers.resize(24);
  EXPECT_THAT(SettingsOf(CoppiceMethod(), "coppice", shape), HasSubstr("layers=7/12/19,"));
  EXPECT_THAT(SettingsOf(CoppiceMethod(), "coppice:keep=0.25/0.1/0.05", shape), HasSubstr("layers=6/12/19,"));
  EXPECT_THAT(SettingsOf(CoppiceMethod(), "coppice:keep=0.25/0.1/0.05,mass=0.9", shape),
              HasSubstr("layers=7/12/19,"));
}

}  // namespace
}  // namespace coppice
