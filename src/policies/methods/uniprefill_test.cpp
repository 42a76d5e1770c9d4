#include "policies/methods/uniprefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "special_floats.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

UniPrefillConfig SmallUniPrefill() { return {.layers = {3, 5}, .p = 0.5, .block = 2, .sink = 0, .last = 1}; }

Rows Ask(const UniPrefillConfig& config, const Rows& positions, const std::vector<float>& mass,
         int layer = 3) {
  Scene scene(positions, positions.back() + 1, layer);
  scene.Mass(config.last, mass);
  UniPrefillPolicy policy(config);
  Rows kept;
  for (const int32_t row : policy.AfterAttention(scene.seen, *scene.be).ToRows())
    kept.push_back(positions[static_cast<size_t>(row)]);
  return kept;
}

TEST(UniPrefillPolicy, TheFewestBlocksThatHoldTheMass) {
  const Rows all = {0, 1, 2, 3, 4, 5, 6, 7};
  // Blocks of 1, 4, 3 and 2 of 10: half is reached by the second and third. The last row's block stays.
  EXPECT_EQ(Ask(SmallUniPrefill(), all, {0.5, 0.5, 4, 0, 1, 2, 1, 1}), (Rows{2, 3, 4, 5, 6, 7}));
  UniPrefillConfig config = SmallUniPrefill();
  config.p = 0.4;  // the block that reaches p counts, and no other
  EXPECT_EQ(Ask(config, all, {0.5, 0.5, 4, 0, 1, 2, 1, 1}), (Rows{2, 3, 6, 7}));
  config.p = 0.41;
  EXPECT_EQ(Ask(config, all, {0.5, 0.5, 4, 0, 1, 2, 1, 1}), (Rows{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Ask(SmallUniPrefill(), all, std::vector<float>(8, 1)),
            (Rows{0, 1, 2, 3, 6, 7}));  // ties: the earlier block
  EXPECT_EQ(Ask(SmallUniPrefill(), all, {kNan, 1, 9, 9, kNan, kNan, 0, 0}), (Rows{2, 3, 6, 7}));
  EXPECT_EQ(Ask(SmallUniPrefill(), all, std::vector<float>(8, 0)), all);  // no mass says nothing
}

TEST(UniPrefillPolicy, FirstPositionsAndTheLastRowsBlocksStay) {
  UniPrefillConfig config = SmallUniPrefill();
  config.sink = 3;
  config.last = 2;
  // The last block is partial, so the last two rows are in two blocks.
  EXPECT_EQ(Ask(config, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 0, 0, 0, 9, 9, 0, 0, 0}),
            (Rows{0, 1, 2, 4, 5, 6, 7, 8}));
  // The sink is of positions, blocks are of rows.
  EXPECT_EQ(Ask(config, {2, 10, 11, 12, 13, 14, 15}, {0, 0, 0, 0, 0, 9, 0}), (Rows{2, 13, 14, 15}));
  // sink + last rows or fewer are not pruned.
  EXPECT_EQ(Ask(config, {0, 1, 2, 3, 4}, {9, 0, 0, 0, 0}).size(), 5u);
  EXPECT_EQ(Ask(config, {0, 1, 2, 3, 4, 5, 6}, {9, 0, 0, 0, 0, 0, 0}), (Rows{0, 1, 2, 4, 5, 6}));
}

TEST(UniPrefillPolicy, WhereItActs) {
  UniPrefillPolicy policy(SmallUniPrefill());
  const LayerPoint first{3, true};
  EXPECT_EQ(policy.FirstChoice(), first);
  for (int layer = 0; layer < 8; ++layer) {
    const bool decides = layer == 3 || layer == 5;
    EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, layer).masses,
              decides ? std::vector<Needs::Mass>{{.queries = 1}} : std::vector<Needs::Mass>{});
    EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, layer).empty());
    Scene scene(9, layer);
    if (!decides) {
      EXPECT_TRUE(policy.AfterAttention(scene.seen, *scene.be).IsAll());
    }
  }
  UniPrefillConfig whole = SmallUniPrefill();
  whole.p = 1;
  UniPrefillPolicy dense(whole);
  EXPECT_EQ(dense.FirstChoice(), kNoPoint);
  EXPECT_TRUE(dense.NeedsAt(Phase::kPrefill, 3).empty());
}

TEST(UniPrefillMethod, SettingsAndReasons) {
  const MethodInfo method = UniPrefillMethod();
  EXPECT_EQ(SettingsOf(method, "uniprefill"),
            "uniprefill:layers=7/11/15/19/23/27,p=0.99,block=64,sink=128,last=128,min=1024");
  ExpectStandsAside(method, 1024);
  EXPECT_THAT(MakeMethod(method, "uniprefill:min=0", Llama8B(), 256).reason,
              HasSubstr("no more than it always keeps"));
  EXPECT_EQ(MakeMethod(method, "uniprefill:min=0", Llama8B(), 257).reason, "");
  ModelShape one = Llama8B();
  one.layers.resize(1);
  EXPECT_THAT(MakeMethod(method, "uniprefill", one).reason, HasSubstr("no stage"));
  for (const char* bad : {"p=0", "p=1.1", "p=nan", "block=0", "sink=-1", "last=0", "layers=0", "layers=32",
                          "layers=5/4", "keep=1"}) {
    EXPECT_THAT(RefusalOf(method, std::string("uniprefill:") + bad), testing::StartsWith("uniprefill: "))
        << bad;
  }
}

}  // namespace
}  // namespace coppice
