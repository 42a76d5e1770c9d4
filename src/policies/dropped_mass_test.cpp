#include "policies/dropped_mass.h"

#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"

namespace coppice {
namespace {

const Needs::Mass kMeasuredMass{.queries = 1, .sink = 4};

TEST(DroppedMass, IsTheShareOfWhatLeft) {
  std::vector<DroppedShare> report;
  DroppedMassMeter meter({5, false}, &report);
  EXPECT_TRUE(meter.NeedsAt(Phase::kPrefill, 3).empty());
  EXPECT_EQ(meter.NeedsAt(Phase::kPrefill, 4).masses, std::vector{kMeasuredMass});
  EXPECT_TRUE(meter.NeedsAt(Phase::kDecode, 4).empty());

  Scene before({0, 1, 2, 3, 4}, 5, 5);
  before.Mass(kMeasuredMass, {{0, 1, 2, 3, 4}});
  meter.BeforeLayer(before.seen, TokenSet::Of({0, 3, 4}, 5));  // 1 and 2 leave: 3 of 10
  ASSERT_EQ(report.size(), 1u);
  EXPECT_EQ(report[0].layer, 5);
  EXPECT_NEAR(report[0].share, 0.3, 1e-6);

  Scene after({0, 3, 4}, 5, 5);
  after.Mass(kMeasuredMass, {{0, 6, 2}});
  meter.AfterAttention(after.seen, TokenSet::Of({0, 2}, 3));  // and 3 after the attention: 6 of 8
  ASSERT_EQ(report.size(), 2u);
  EXPECT_NEAR(report[1].share, 0.75, 1e-6);
}

TEST(DroppedMass, SaysNothingWhereNothingLeaves) {
  std::vector<DroppedShare> report;
  DroppedMassMeter meter({1, false}, &report);
  for (int layer = 1; layer < 31; ++layer) {
    Scene scene({0, 1, 2}, 3, layer);
    scene.Mass(kMeasuredMass, {{1, 1, 1}});
    meter.BeforeLayer(scene.seen, TokenSet::All(3));
    meter.AfterAttention(scene.seen, TokenSet::All(3));
  }
  // The last layer computes its last row alone, and no scores.
  Scene last({9}, 10, 31);
  last.seen.layers = 32;
  meter.AfterAttention(last.seen, TokenSet::All(1));
  EXPECT_TRUE(report.empty());
}

}  // namespace
}  // namespace coppice
