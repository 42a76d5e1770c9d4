#include "policies/methods/gemfilter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policies/pattern_test_support.h"
#include "policies/registry.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> Entering(GemFilterConfig config, const std::vector<float>& scores) {
  const auto be = MakeBackend("reference", {});
  GemFilterPolicy policy(config, [&](int layer) {
    EXPECT_EQ(layer, config.layer);
    return scores;
  });
  return policy.Input(static_cast<int64_t>(scores.size()), *be).ToRows();
}

TEST(GemFilter, TheBestTokensAndTheLastEnter) {
  const std::vector<float> scores = {-1, 5, 3, 3, -9, 4, -9};
  EXPECT_THAT(Entering({.layer = 2, .keep = {3}, .kernel = 1}, scores), ElementsAre(1, 5, 6));
  EXPECT_THAT(Entering({.layer = 2, .keep = {4}, .kernel = 1}, scores),
              ElementsAre(1, 2, 5, 6));                                                     // of equals
  EXPECT_THAT(Entering({.layer = 2, .keep = {0.1}, .kernel = 1}, scores), ElementsAre(6));  // at least one
  EXPECT_THAT(Entering({.layer = 2, .keep = {0.6}, .kernel = 1}, scores), ElementsAre(1, 2, 5, 6));  // 4.2
}

// Sums of three: 4, 7, 11, -3, -2, -14, -5. A token at an end has a neighbour less, which counts 0.
TEST(GemFilter, NeighboursShareTheirScores) {
  const std::vector<float> scores = {-1, 5, 3, 3, -9, 4, -9};
  EXPECT_THAT(Entering({.keep = {4}, .kernel = 3}, scores), ElementsAre(0, 1, 2, 6));
  EXPECT_THAT(Entering({.keep = {5}, .kernel = 3}, scores), ElementsAre(0, 1, 2, 4, 6));
}

TEST(GemFilter, ANanEntersLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Entering({.keep = {3}, .kernel = 1}, {-5, -4, -3, -2, nan}), ElementsAre(2, 3, 4));
}

// keep = 1 and a budget of the whole prompt do not run the first layers.
TEST(GemFilter, IdentityIsFree) {
  const auto be = MakeBackend("reference", {});
  for (const double keep : {1.0, 9.0, 100.0}) {
    GemFilterPolicy policy({.keep = {keep}}, [](int) -> std::vector<float> {
      ADD_FAILURE() << "asked";
      return {};
    });
    EXPECT_TRUE(policy.Input(9, *be).IsAll());
  }
}

// The first pass scores at one layer, in prefill, and keeps every key.
TEST(GemFilter, WatchesItsLayerAlone) {
  FilterWatch watch(3);
  for (const int layer : {0, 2, 4}) EXPECT_TRUE(watch.NeedsAt(Phase::kPrefill, layer).empty());
  EXPECT_TRUE(watch.NeedsAt(Phase::kDecode, 3).empty());
  const Needs needs = watch.NeedsAt(Phase::kPrefill, 3);
  ASSERT_EQ(needs.unit_scores.size(), 1u);
  EXPECT_EQ(needs.unit_scores[0], (Needs::Units{.queries = 1, .unit = 1}));
  Observation seen;
  seen.layer = 3;
  const MutableTensorView scores = seen.AddUnitScores(needs.unit_scores[0], 3);
  for (int i = 0; i < 3; ++i) scores.Row<float>(0)[static_cast<size_t>(i)] = static_cast<float>(i);
  const auto be = MakeBackend("reference", {});
  EXPECT_TRUE(watch.RetainsAt(Phase::kPrefill, 3));
  EXPECT_FALSE(watch.Retain(seen, {}, *be).has_value());
  EXPECT_THAT(watch.scores(), ElementsAre(0, 1, 2));
}

TEST(GemFilter, Registry) {
  ModelShape shape = Llama8B();
  const auto make = [&](const std::string& spec, int64_t tokens) {
    return MakePolicy(spec, {.shape = shape, .tokens = tokens}, {});
  };
  const auto error = [&](const std::string& spec) { return ErrorOf([&] { make(spec, 32768); }); };
  const PruneChoice choice = make("gemfilter", 32768);
  EXPECT_TRUE(choice.active);
  EXPECT_EQ(choice.spec, "gemfilter:layer=13,keep=1024,kernel=5,positions=compact,min=1024");
  EXPECT_TRUE(choice.policy->Facts().compact_positions);
  EXPECT_FALSE(make("gemfilter:positions=original", 32768).policy->Facts().compact_positions);
  EXPECT_THAT(error("gemfilter:layer=32"), HasSubstr("layer=32"));
  EXPECT_THAT(error("gemfilter:keep=0"), HasSubstr("keep=0 keeps nothing"));
  EXPECT_THAT(error("gemfilter:kernel=4"), HasSubstr("kernel=4 must be odd"));
  EXPECT_THAT(error("gemfilter:window=8"), HasSubstr("unknown key 'window'"));
  EXPECT_THAT(make("gemfilter", 1000).reason, HasSubstr("break-even of 1024"));
  EXPECT_THAT(make("gemfilter", 1024).reason, HasSubstr("no more than it always keeps"));
  // 13 N + 32 * 1024 < 32 N from 1,725 tokens on.
  EXPECT_THAT(make("gemfilter", 1724).reason, HasSubstr("no less work than the dense prefill"));
  EXPECT_EQ(make("gemfilter", 1725).reason, "");
  EXPECT_EQ(make("gemfilter:min=0", 1724).reason, "");
  SetInAll(shape, &LayerShape::window, 4096);
  EXPECT_THAT(make("gemfilter", 5000).reason, HasSubstr("sliding window of 4096"));
  EXPECT_EQ(GemFilterMethod().traits, kSelectsInput);
}

}  // namespace
}  // namespace coppice
