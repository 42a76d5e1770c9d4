#include "policies/methods/fastkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/retain_test_support.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using Lists = std::vector<std::vector<float>>;
using testing::HasSubstr;

FastKvConfig Small() { return {.layer = 3, .keep = {4}, .cache = {3}, .window = 2, .kernel = 1}; }

// What goes on to `layer` of a prompt with these masses.
Rows Ask(const FastKvConfig& config, const Lists& mass, int layer = 4) {
  const auto tokens = static_cast<int64_t>(mass.front().size());
  Scene scene(tokens, layer);
  FastKvPolicy policy(config);
  scene.Mass(policy.NeedsAt(Phase::kPrefill, 3).masses.at(0), mass);
  return policy.BeforeLayer(scene.seen, *scene.be).ToRows();
}

TEST(FastKvPolicy, KvHeadsSumTheirPooledScores) {
  // Alone each head would choose 0 and 1, or 2 and 3. Together 1 and 2 have the most. The window's own mass
  // does not count.
  const Lists mass = {{5, 4, 1, 0, 0, 0, 9, 9}, {0, 0, 4, 3, 0, 0, 0, 0}};
  EXPECT_EQ(Ask(Small(), {mass[0]}), (Rows{0, 1, 6, 7}));
  EXPECT_EQ(Ask(Small(), {mass[1]}), (Rows{2, 3, 6, 7}));
  EXPECT_EQ(Ask(Small(), mass), (Rows{0, 2, 6, 7}));  // 5 4 5 3
  EXPECT_EQ(Ask(Small(), {std::vector<float>(8, 1), std::vector<float>(8, 1)}), (Rows{0, 1, 6, 7}));  // ties
  FastKvConfig config = Small();
  config.kernel = 3;  // sums 5 4 5 3 0 0: means 3 14/3 4 8/3 1 0
  EXPECT_EQ(Ask(config, mass), (Rows{1, 2, 6, 7}));
  config.max_pool = true;  // heads 5 5 4 1 0 0 and 0 4 4 4 3 0: 5 9 8 5 3 0
  EXPECT_EQ(Ask(config, mass), (Rows{1, 2, 6, 7}));
}

TEST(FastKvPolicy, BudgetsOfThePrompt) {
  const Lists mass = {{5, 4, 1, 0, 0, 0, 9, 9}};
  FastKvConfig config = Small();
  config.keep = {0.7};  // floor(5.6)
  EXPECT_EQ(Ask(config, mass), (Rows{0, 1, 2, 6, 7}));
  config.keep = {0.1};  // the window always stays
  EXPECT_EQ(Ask(config, mass), (Rows{6, 7}));
  config.keep = {1};
  EXPECT_EQ(Ask(config, mass).size(), 8u);
  for (const int layer : {1, 3, 5}) EXPECT_EQ(Ask(Small(), mass, layer).size(), 8u) << layer;
}

// Each kv head's cache keeps SnapKV's rows, whatever goes on.
TEST(FastKvPolicy, EvictsLikeSnapKv) {
  Noise noise(4);
  const Lists mass = noise.Lists(2, 90);
  FastKvPolicy fastkv({.layer = 3, .keep = {0.5}, .cache = {0.2}, .window = 8, .kernel = 7});
  SnapKvPolicy snapkv({.cap = {0.2}, .window = 8, .kernel = 7});
  EvictedCache mine(fastkv, 2), other(snapkv, 2);
  EXPECT_TRUE(mine.Prefill(90, mass));
  EXPECT_TRUE(other.Prefill(90, mass));
  for (const size_t g : {0u, 1u}) EXPECT_EQ(mine.positions(g), other.positions(g));
  EXPECT_EQ(mine.rows(), 18);
  EXPECT_FALSE(fastkv.RetainsAt(Phase::kDecode, 3));
  EXPECT_TRUE(fastkv.NeedsAt(Phase::kDecode, 3).empty());
}

TEST(FastKvMethod, SettingsAndReasons) {
  const MethodInfo method = FastKvMethod();
  EXPECT_EQ(SettingsOf(method, "fastkv"),
            "fastkv:layer=15,keep=0.2,cache=0.1,window=8,kernel=7,pool=avg,min=1024");
  ExpectStandsAside(method, 1024);
  const LayerPoint first{16, false};
  EXPECT_EQ(MakeMethod(method, "fastkv").policy->FirstChoice(), first);
  EXPECT_THAT(MakeMethod(method, "fastkv:keep=1,cache=1").reason, HasSubstr("fit what it always keeps"));
  EXPECT_EQ(MakeMethod(method, "fastkv:keep=1,cache=0.5").reason, "");
  EXPECT_EQ(MakeMethod(method, "fastkv:keep=0.5,cache=1").reason, "");
  EXPECT_THAT(MakeMethod(method, "fastkv:min=0", Llama8B(), 1).reason, HasSubstr("fit what it always keeps"));
  for (const char* bad : {"layer=-1", "layer=31", "keep=0", "cache=0", "keep=2.5", "window=0", "kernel=4",
                          "pool=sum", "rate=1"}) {
    EXPECT_THAT(RefusalOf(method, std::string("fastkv:") + bad), testing::StartsWith("fastkv: ")) << bad;
  }
}

}  // namespace
}  // namespace coppice
