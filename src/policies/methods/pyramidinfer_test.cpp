#include "policies/methods/pyramidinfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

PyramidInferConfig SmallPyramid() {
  return {.layers = 8, .recent = 3, .r = 0.5, .sink = 1, .min_context = 0};
}

Rows Ask(const PyramidInferConfig& config, int layer, const Rows& positions, const std::vector<float>& mass) {
  Scene scene(positions, positions.back() + 1, layer);
  scene.Mass(Needs::Mass{.queries = config.recent, .last_weight = 1.2f}, {mass});
  PyramidInferPolicy policy(config);
  Rows kept;
  for (const int32_t row : policy.BeforeLayer(scene.seen, *scene.be).ToRows())
    kept.push_back(positions[static_cast<size_t>(row)]);
  return kept;
}

TEST(PyramidInferPolicy, Schedules) {
  PyramidInferPolicy cosine(SmallPyramid());
  EXPECT_DOUBLE_EQ(cosine.Ratio(0), 1);
  EXPECT_DOUBLE_EQ(cosine.Ratio(2), 0.5 + 0.25 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(cosine.Ratio(4), 0.75);
  EXPECT_DOUBLE_EQ(cosine.Ratio(8), 0.5);
  PyramidInferConfig straight = SmallPyramid();
  straight.linear = true;
  PyramidInferPolicy linear(straight);
  EXPECT_DOUBLE_EQ(linear.Ratio(0), 1);
  EXPECT_DOUBLE_EQ(linear.Ratio(2), 0.875);
  EXPECT_DOUBLE_EQ(linear.Ratio(8), 0.5);
}

TEST(PyramidInferPolicy, TheContextShrinksAndTheRecentStay) {
  // After layer 4 of 8: floor(.75 * 6) = 4 of the context of 6, the sink among them, and the recent three.
  const Rows all = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(Ask(SmallPyramid(), 5, all, {0, 1, 5, 2, 4, 3, 0, 0, 0}), (Rows{0, 2, 4, 5, 6, 7, 8}));
  EXPECT_EQ(Ask(SmallPyramid(), 5, all, std::vector<float>(9, 1)), (Rows{0, 1, 2, 3, 6, 7, 8}));  // ties
  EXPECT_EQ(Ask(SmallPyramid(), 5, all, {kNan, kNan, kNan, kNan, 1, 1, 9, 9, 9}),
            (Rows{0, 1, 4, 5, 6, 7, 8}));
  // The sink is a position.
  EXPECT_EQ(Ask(SmallPyramid(), 5, {1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 0, 0, 0}), (Rows{2, 3, 4, 5, 6, 7}));
  // No context, or a single row of it (floor(.75) = 0 is not more than min_context).
  EXPECT_EQ(Ask(SmallPyramid(), 5, {0, 1, 2}, {1, 1, 1}), (Rows{0, 1, 2}));
  EXPECT_EQ(Ask(SmallPyramid(), 5, {0}, {1}), Rows{0});
  EXPECT_EQ(Ask(SmallPyramid(), 5, {0, 1, 2, 3}, {1, 1, 1, 1}), (Rows{0, 1, 2, 3}));
}

TEST(PyramidInferPolicy, SmallContextsStayWhole) {
  PyramidInferConfig config = SmallPyramid();
  const Rows all = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> mass(9, 1);
  config.min_context = 3;
  EXPECT_EQ(Ask(config, 5, all, mass).size(), 7u);
  config.min_context = 4;  // a count of four is not more than four
  EXPECT_EQ(Ask(config, 5, all, mass).size(), 9u);
}

// By hand, for r = 0.9 over 32 layers: 0.766 on average, 0.376 in the last, sizes nested.
TEST(PyramidInferPolicy, PublishedSizes) {
  const int64_t n = 10000;
  PyramidInferPolicy policy({.layers = 32, .recent = 2001, .r = 0.9});
  Rows there(static_cast<size_t>(n));
  std::iota(there.begin(), there.end(), 0);
  double sum = 0;
  for (int layer = 0; layer < 32; ++layer) {
    if (layer > 0) {
      Scene scene(there, n, layer);
      std::vector<float> mass;
      for (const int32_t p : there) mass.push_back(static_cast<float>((p * 7919 + layer * 31) % 1009));
      scene.Mass(Needs::Mass{.queries = 2001, .last_weight = 1.2f}, {mass});
      Rows next;
      for (const int32_t row : policy.BeforeLayer(scene.seen, *scene.be).ToRows())
        next.push_back(there[static_cast<size_t>(row)]);
      EXPECT_TRUE(std::includes(there.begin(), there.end(), next.begin(), next.end()));
      EXPECT_EQ(next[next.size() - 2001], n - 2001);
      EXPECT_EQ(next[3], 3);
      there = next;
    }
    sum += static_cast<double>(there.size());
  }
  EXPECT_NEAR(sum / 32 / n, 0.766, 0.001);
  EXPECT_NEAR(static_cast<double>(there.size()) / n, 0.376, 0.002);
}

TEST(PyramidInferPolicy, WhereItActs) {
  PyramidInferConfig config = SmallPyramid();
  config.interval = 3;
  PyramidInferPolicy policy(config);
  const Needs::Mass mass{.queries = 3, .last_weight = 1.2f};
  for (int layer = 0; layer < 8; ++layer) {
    const bool observes = layer == 3 || layer == 6;  // after layer 0 the ratio is 1
    EXPECT_EQ(policy.NeedsAt(Phase::kPrefill, layer).masses,
              observes ? std::vector{mass} : std::vector<Needs::Mass>{})
        << layer;
    EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, layer).empty());
    if (!observes) {
      Scene scene(9, layer + 1);
      EXPECT_TRUE(policy.BeforeLayer(scene.seen, *scene.be).IsAll()) << layer;
    }
  }
  config = SmallPyramid();
  EXPECT_TRUE(PyramidInferPolicy(config).NeedsAt(Phase::kPrefill, 7).empty());  // nothing comes after
  config.r = 1;
  for (int layer = 0; layer < 8; ++layer)
    EXPECT_TRUE(PyramidInferPolicy(config).NeedsAt(Phase::kPrefill, layer).empty());
}

TEST(PyramidInferMethod, SettingsAndReasons) {
  const MethodInfo method = PyramidInferMethod();
  EXPECT_EQ(
      SettingsOf(method, "pyramidinfer"),
      "pyramidinfer:r=0.9,recent=0.2,sink=4,interval=1,distance_weight=1.2,min_context=64,strategy=cosine,"
      "min=1024");
  ModelShape shape = Llama8B();
  shape.layers.resize(40, shape.layer(0));
  shape.hidden = 5120;
  EXPECT_THAT(SettingsOf(method, "pyramidinfer", shape), HasSubstr("r=0.8,recent=0.2,sink=4,interval=2,"));
  EXPECT_THAT(SettingsOf(method, "pyramidinfer:strategy=linear,r=.7"), HasSubstr("strategy=linear"));
  const MethodInstance made = MakeMethod(method, "pyramidinfer", Llama8B(), 32768);
  EXPECT_EQ(made.policy->NeedsAt(Phase::kPrefill, 1).masses,
            (std::vector<Needs::Mass>{{.queries = 6554, .last_weight = 1.2f}}));  // floor(.2 N) + 1
  EXPECT_THAT(MakeMethod(method, "pyramidinfer", Llama8B(), 1023).reason, HasSubstr("break-even of 1024"));
  // A prompt that is all recent, or has no more before that than is always kept.
  EXPECT_THAT(MakeMethod(method, "pyramidinfer:recent=1", Llama8B(), 2000).reason,
              HasSubstr("recent=1 leaves 0 of 2000 prompt tokens"));
  EXPECT_THAT(MakeMethod(method, "pyramidinfer:recent=0.5,min_context=999", Llama8B(), 2000).reason,
              HasSubstr("leaves 999 of 2000 prompt tokens, no more than min_context=999"));
  EXPECT_EQ(MakeMethod(method, "pyramidinfer:recent=0.5,min_context=998", Llama8B(), 2000).reason, "");
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 100);
  EXPECT_THAT(MakeMethod(method, "pyramidinfer", windowed).reason, HasSubstr("sliding window"));
  for (const char* bad : {"r=0", "r=1.1", "recent=-1", "recent=2", "sink=-1", "interval=0",
                          "distance_weight=0", "min_context=-1", "strategy=square", "keep=1", "r=nan"}) {
    EXPECT_THAT(RefusalOf(method, std::string("pyramidinfer:") + bad), testing::StartsWith("pyramidinfer: "))
        << bad;
  }
}

}  // namespace
}  // namespace coppice
