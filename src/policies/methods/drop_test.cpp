#include "policies/methods/drop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "policies/method_test_support.h"
#include "policies/registry.h"
#include "policy_scene.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int32_t>;

Rows Ask(DropPolicy& policy, int layer, const Rows& positions) {
  Scene scene(positions, positions.back() + 1, layer);
  Rows kept;
  for (const int32_t row : policy.BeforeLayer(scene.seen, *scene.be).ToRows())
    kept.push_back(positions[static_cast<size_t>(row)]);
  return kept;
}

TEST(DropPolicy, DropsTheSpansOnceAndKeepsTheLastRow) {
  DropPolicy policy({.spans = {{1, 3}, {6, 9}}, .layer = 2});
  const Rows all = {0, 1, 2, 3, 5, 6, 8};
  EXPECT_EQ(Ask(policy, 1, all), all);
  EXPECT_EQ(Ask(policy, 2, all), (Rows{0, 3, 5, 8}));  // 8 is in a span, and the last row
  EXPECT_EQ(Ask(policy, 3, {1, 8}), (Rows{1, 8}));
}

TEST(DropMethod, TakesTheEvidenceOfTheRequest) {
  const ModelShape shape = Llama8B();
  const std::vector<PositionSpan> evidence = {{70, 75}};
  MethodContext context{.shape = shape, .tokens = 200, .evidence = evidence};
  const PruneChoice exact = MakePolicy("drop:layer=5", context, {});
  ASSERT_TRUE(exact.active) << exact.reason;
  EXPECT_EQ(exact.spec, "drop:span=evidence,layer=5,block=1,min=0");
  const PruneChoice blocks = MakePolicy("drop:layer=5,block=64", context, {});
  Rows all(200);
  for (int32_t i = 0; i < 200; ++i) all[static_cast<size_t>(i)] = i;
  for (const auto& [choice, begin, end] : {std::tuple(&exact, 70, 75), std::tuple(&blocks, 64, 128)}) {
    Scene scene(all, 200, 5);
    const Rows kept = choice->policy->BeforeLayer(scene.seen, *scene.be).ToRows();
    EXPECT_EQ(std::ssize(kept), 200 - (end - begin));
    EXPECT_EQ(std::count_if(kept.begin(), kept.end(), [&](int32_t row) { return row >= begin && row < end; }),
              0);
  }
}

// An input selection gives tokens other positions, so the evidence is then unknown.
TEST(DropMethod, StandsAsideWhereItKnowsNoSpan) {
  const ModelShape shape = Llama8B();
  const std::vector<PositionSpan> evidence = {{70, 75}};
  EXPECT_THAT(MakePolicy("drop", {.shape = shape, .tokens = 200}, {}).reason, HasSubstr("evidence"));
  EXPECT_THAT(MakePolicy("drop:span=300/400", {.shape = shape, .tokens = 200}, {}).reason,
              HasSubstr("outside"));
  const PruneChoice packed =
      MakePolicy("random:keep=0.5,min=0+drop", {.shape = shape, .tokens = 200, .evidence = evidence}, {});
  EXPECT_THAT(packed.reason, HasSubstr("drop: nothing says where in the 100 prompt tokens"));
}

TEST(DropMethod, RefusesSpansThatAreNone) {
  const ModelShape shape = Llama8B();
  for (const char* spec : {"drop:span=5", "drop:span=7/7", "drop:span=9/3", "drop:span=1/2/3",
                           "drop:span=-1/3", "drop:layer=0", "drop:layer=32", "drop:block=0"})
    EXPECT_THROW(MakePolicy(spec, {.shape = shape, .tokens = 200}, {}), PruneError) << spec;
}

}  // namespace
}  // namespace coppice
