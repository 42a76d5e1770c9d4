#include "policies/methods/static_pruning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

Rows Ask(StaticPruningPolicy& policy, int layer, const Rows& positions, const std::vector<float>& mass) {
  Scene scene(positions, positions.back() + 1, layer);
  scene.Mass(1, mass);
  Rows kept;
  for (const int32_t row : policy.BeforeLayer(scene.seen, *scene.be).ToRows())
    kept.push_back(positions[static_cast<size_t>(row)]);
  return kept;
}

TEST(StaticPruningPolicy, SumsTheFirstLayersAndPrunesOnce) {
  StaticPruningPolicy policy({.layer = 3, .keep = 0.5});
  const Rows all = {0, 1, 2, 3, 4};
  EXPECT_EQ(Ask(policy, 1, all, {5, 0, 1, 0, 0}), all);
  EXPECT_EQ(Ask(policy, 2, all, {0, 2, 2, 0, 0}), all);
  EXPECT_EQ(Ask(policy, 3, all, {0, 2, 0, 4, 0}),
            (Rows{0, 1, 4}));  // 5 4 3 4 and the last: ties to the earlier
  EXPECT_EQ(Ask(policy, 4, {0, 1, 4}, {0, 0, 0}), (Rows{0, 1, 4}));
}

TEST(StaticPruningPolicy, SumsGoOnForTokensThatAreStillThere) {
  StaticPruningPolicy policy({.layer = 2, .keep = 0.5});
  Ask(policy, 1, {0, 2, 4, 6, 8}, {9, 1, 5, 3, 0});
  EXPECT_EQ(Ask(policy, 2, {2, 6, 7, 8}, {1, 1, 3, 0}), (Rows{6, 8}));  // 2, 4, 3 (new there) and the last
}

// A policy that met another prompt before does not remember it.
TEST(StaticPruningPolicy, BeginsAnewAtTheFirstLayer) {
  StaticPruningPolicy policy({.layer = 2, .keep = 0.5});
  Ask(policy, 1, {0, 1, 2, 3}, {0, 0, 100, 0});
  Ask(policy, 1, {0, 1, 2, 3}, {1, 0, 0, 0});
  EXPECT_EQ(Ask(policy, 2, {0, 1, 2, 3}, {0, 0, 0, 0}), (Rows{0, 3}));
}

TEST(StaticPruningPolicy, StrangeScoresAndSmallStreams) {
  StaticPruningPolicy policy({.layer = 1, .keep = 0.5});
  EXPECT_EQ(Ask(policy, 1, {0, 1, 2, 3}, {kNan, 1, kNan, kNan}), (Rows{1, 3}));
  EXPECT_EQ(Ask(policy, 1, {0, 1, 2, 3}, {kNan, kNan, kNan, kNan}), (Rows{0, 3}));
  EXPECT_EQ(Ask(policy, 1, {7}, {1}), Rows{7});
}

TEST(StaticPruningPolicy, ObservesTheScoringLayersInPrefill) {
  StaticPruningPolicy policy({.layer = 4, .keep = 0.5});
  for (int layer = 0; layer < 32; ++layer) {
    EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, layer).empty(), layer >= 4) << layer;
    EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, layer).empty());
  }
  EXPECT_FALSE(policy.Facts().parks);
  StaticPruningPolicy whole({.layer = 4, .keep = 1});
  EXPECT_TRUE(whole.NeedsAt(Phase::kPrefill, 0).empty());
  Scene scene(10, 4);
  EXPECT_TRUE(whole.BeforeLayer(scene.seen, *scene.be).IsAll());
}

TEST(StaticPruningMethod, SettingsAndReasons) {
  const MethodInfo method = StaticPruningMethod();
  EXPECT_EQ(SettingsOf(method, "static"), "static:layer=4,keep=0.5,min=1024");
  EXPECT_EQ(SettingsOf(method, "static:layer=31,keep=.1,min=0"), "static:layer=31,keep=0.1,min=0");
  EXPECT_THAT(MakeMethod(method, "static", Llama8B(), 1023).reason, HasSubstr("break-even of 1024"));
  ModelShape shape = Llama8B();
  SetInAll(shape, &LayerShape::window, 100);
  EXPECT_THAT(MakeMethod(method, "static", shape).reason, HasSubstr("sliding window"));
  SetInAll(shape, &LayerShape::window, 0);
  shape.layers.resize(1);
  EXPECT_EQ(MakeMethod(method, "static", shape).reason, "1 layers leave no stage to prune at");
  EXPECT_EQ(SettingsOf(method, "static", shape), "static:layer=0,keep=0.5,min=1024");
  for (const char* bad : {"static:layer=0", "static:layer=32", "static:keep=0", "static:keep=2",
                          "static:min=-1", "static:layers=4"}) {
    EXPECT_THAT(RefusalOf(method, bad), testing::StartsWith("static: ")) << bad;
  }
}

}  // namespace
}  // namespace coppice
