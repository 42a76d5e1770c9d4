#include "policies/methods/spts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

// Two stages, layers 2 to 3 and 4 to 5, of eight layers.
SptsConfig SmallSpts(int64_t tokens) {
  return {.begin = 2, .ends = {3, 5}, .keep = {4, 2}, .drop = {2, 3}, .tokens = tokens};
}

enum class Question { kAttention, kFfn, kBeforeLayer };

Rows Ask(const SptsConfig& config, Question question, const std::vector<float>& mass, int layer) {
  Scene scene(static_cast<int64_t>(mass.size()), layer);
  scene.Mass(1, mass);
  SptsPolicy policy(config, nullptr);
  if (question == Question::kAttention) return policy.RunAttention(scene.seen, *scene.be).ToRows();
  if (question == Question::kFfn) return policy.RunFfn(scene.seen, *scene.be).ToRows();
  return policy.BeforeLayer(scene.seen, *scene.be).ToRows();
}

TEST(SptsPolicy, TheBestRowsAttendAndTheLastOne) {
  const std::vector<float> mass = {5, 1, 9, 2, 7, 3, 8, 0};
  EXPECT_EQ(Ask(SmallSpts(8), Question::kAttention, mass, 2), (Rows{2, 4, 6, 7}));
  EXPECT_EQ(Ask(SmallSpts(8), Question::kFfn, mass, 3), (Rows{2, 4, 6, 7}));
  EXPECT_EQ(Ask(SmallSpts(8), Question::kAttention, {1, 1, 1, 1, 1, 1, 1, 1}, 2),
            (Rows{0, 1, 2, 7}));  // ties
  // Budgets are the stage's; behind the last stage the last one's.
  EXPECT_EQ(Ask(SmallSpts(8), Question::kAttention, {5, 1, 9, 2, 7, 3}, 5), (Rows{2, 5}));
  EXPECT_EQ(Ask(SmallSpts(8), Question::kFfn, {5, 1, 9}, 7), (Rows{0, 2}));
  // As many candidates as the budget: nothing is skipped.
  EXPECT_EQ(Ask(SmallSpts(8), Question::kAttention, {5, 1, 9, 2}, 2), (Rows{0, 1, 2, 3}));
}

TEST(SptsPolicy, CandidatesLeaveBehindAStage) {
  const std::vector<float> mass = {5, 1, 9, 2, 7, 3, 8, 0};
  EXPECT_EQ(Ask(SmallSpts(8), Question::kBeforeLayer, mass, 4), (Rows{0, 2, 4, 5, 6, 7}));  // 2 of 8
  EXPECT_EQ(Ask(SmallSpts(8), Question::kBeforeLayer, {5, 1, 9, 2, 7, 3}, 6), (Rows{2, 4, 5}));
  EXPECT_EQ(Ask(SmallSpts(8), Question::kBeforeLayer, mass, 3).size(), 8u);
  // The next stage's budget stays.
  EXPECT_EQ(Ask(SmallSpts(8), Question::kBeforeLayer, {5, 1, 9, 2}, 6), (Rows{2, 3}));
}

TEST(SptsPolicy, WhereItActs) {
  SptsPolicy policy(SmallSpts(8), nullptr);
  EXPECT_EQ(policy.FirstChoice(), (LayerPoint{2, false}));
  EXPECT_EQ(policy.Candidates(0), 8);
  EXPECT_EQ(policy.Candidates(1), 6);
  EXPECT_EQ(policy.Candidates(2), 3);
  for (int layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(policy.ProbesAttention(layer), layer >= 2) << layer;
    EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, layer).masses.size(), layer >= 2 ? 1u : 0u);
    EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, layer).empty());
  }
  // A prompt that the first stage's budget covers: its layers are dense, but its last one scores what leaves.
  SptsPolicy shorter(SmallSpts(4), nullptr);
  EXPECT_EQ(shorter.FirstChoice(), (LayerPoint{4, false}));
  for (int layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(shorter.ProbesAttention(layer), false)
        << layer;  // 2 leave behind layer 3, and keep=2 covers the rest
    EXPECT_EQ(shorter.NeedsAt(Phase::kPrefill, layer).masses.size(), layer == 3 ? 1u : 0u) << layer;
  }
  EXPECT_EQ(SptsPolicy(SmallSpts(2), nullptr).FirstChoice(), kNoPoint);
}

TEST(SptsMethod, SettingsAndReasons) {
  const MethodInfo method = SptsMethod();
  EXPECT_EQ(SettingsOf(method, "spts"),
            "spts:proxy=none,begin=10,layers=13/18/23/28,keep=9000/7000/4000/2000,drop=1000/1000/1000/"
            "1000,min=1024");
  ModelShape qwen = Llama8B();
  qwen.architecture = "qwen2";
  qwen.layers.resize(28);
  qwen.hidden = 3584;
  EXPECT_EQ(SettingsOf(method, "spts", qwen),
            "spts:proxy=none,begin=9,layers=12/16/20/24,keep=13000/10000/7000/4000,drop=2000/2000/2000/"
            "2000,min=1024");
  EXPECT_THAT(SettingsOf(method, "spts:keep=0.5/0.25/0.2/0.1,drop=0.05/0/100/1", Llama8B(), 10001),
              HasSubstr("keep=0.5/0.25/0.2/0.1,drop=0.05/0/100/1"));
  EXPECT_THAT(MakeMethod(method, "spts:min=0", Llama8B(), 2000).reason,
              HasSubstr("no more than it always keeps"));
  EXPECT_EQ(MakeMethod(method, "spts:min=0", Llama8B(), 2001).reason, "");
  EXPECT_THAT(MakeMethod(method, "spts:keep=100", Llama8B(), 1023).reason,
              HasSubstr("below its break-even of 1024"));
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_THAT(MakeMethod(method, "spts", windowed).reason, HasSubstr("sliding window of 4096"));
  for (const char* bad : {"begin=-1", "begin=32", "layers=0", "layers=32", "layers=5/4", "begin=14", "keep=0",
                          "keep=1/2", "drop=-1", "drop=1/2"}) {
    EXPECT_THAT(RefusalOf(method, std::string("spts:") + bad), testing::StartsWith("spts: ")) << bad;
  }
  EXPECT_THAT(RefusalOf(method, "spts:proxy=/no/such/file"), HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace coppice
