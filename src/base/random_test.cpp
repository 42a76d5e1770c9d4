#include "base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace coppice {
namespace {

using testing::ElementsAre;

TEST(Random, GivesThePublishedNumbers) {
  Random zero(0);
  EXPECT_EQ(zero.Next(), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(zero.Next(), 0x6E789E6AA1B965F4u);
  Random random(1234567);
  for (const uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                  4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(random.Next(), expected);
  EXPECT_EQ(Random::Mix(1234567 + 2 * Random::kStep), 3203168211198807973u);
}

// The fixed sequences of these seeds. Samples, methods and checkpoints depend on them.
TEST(Random, KeepsItsSequences) {
  Random random(1234567);
  for (int i = 0; i < 4; ++i) random.Next();
  std::vector<uint64_t> below;
  for (const uint64_t bound : {1u, 2u, 10u, 26u, 9000000u, 1000000007u}) below.push_back(random.Below(bound));
  EXPECT_THAT(below, ElementsAre(0, 0, 7, 13, 838704, 505665772));
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  random.Shuffle(items);
  EXPECT_THAT(items, ElementsAre(4, 2, 6, 5, 1, 9, 7, 3, 0, 8));
  EXPECT_EQ(random.Pick(items), 7);
  EXPECT_THAT(random.Distinct(7, 20), ElementsAre(5, 10, 7, 12, 9, 19, 4));
  EXPECT_THAT(random.Distinct(5, 5), ElementsAre(2, 4, 1, 3, 0));

  Random real(1234567);
  for (int i = 0; i < 2; ++i) real.Next();
  EXPECT_EQ(real.Uniform(), 0.53220730406241923);
  EXPECT_EQ(real.Uniform(), 0.24900765738229136);
}

TEST(Random, AStreamForEachPlace) {
  EXPECT_EQ(RandomAt({1, 2}).Next(), 0x5DEF8C1F8A9E3322u);
  EXPECT_EQ(RandomAt({1, 4, ~uint64_t{0}}).Next(), 0xFA27878329F55CF1u);
  EXPECT_EQ(RandomAt({9}).Next(), 0x9091B1541DAC4DFEu);
  EXPECT_EQ(RandomAt({}, 5).Next(), Random(5).Next());
  std::vector<int64_t> order(12);
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomAt({7, 3, 99}).Shuffle(order);
  EXPECT_THAT(order, ElementsAre(1, 9, 5, 7, 8, 4, 3, 6, 2, 10, 11, 0));
}

// Without rejection, each remainder below 2^62 would have two draws: half of all results would fall there,
// not a third.
TEST(Random, NoRemainderIsFavoured) {
  constexpr uint64_t kThird = uint64_t{1} << 62;
  Random random(2);
  int low = 0;
  for (int i = 0; i < 6000; ++i) low += random.Below(3 * kThird) < kThird ? 1 : 0;
  EXPECT_NEAR(low, 2000, 220);  // six standard deviations
}

TEST(Random, DistinctNumbersAreDistinctAndFair) {
  Random random(5);
  std::vector<int> seen(10);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<int64_t> drawn = random.Distinct(3, 10);
    EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 3u);
    for (const int64_t i : drawn) ++seen.at(static_cast<size_t>(i));
  }
  for (const int count : seen) EXPECT_NEAR(count, 900, 120);
  EXPECT_TRUE(random.Distinct(0, 4).empty());
}

}  // namespace
}  // namespace coppice
