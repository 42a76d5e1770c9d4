#include "policies/methods/random_drop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using testing::HasSubstr;

TokenSet Enters(double keep, int64_t tokens, uint64_t seed = 0) {
  Scene scene(1);
  RandomDropPolicy random({.layers = {}, .keep = {keep}, .seed = seed});
  TokenSet set = random.Input(tokens, *scene.be);
  EXPECT_EQ(set.universe(), tokens);
  EXPECT_TRUE(set.Contains(tokens - 1));
  return set;
}

TEST(RandomDropPolicy, ExactlyTheShareWithTheLastAmongThem) {
  for (int64_t n = 1; n <= 50; ++n) {
    EXPECT_EQ(Enters(0.5, n).size(), (n + 1) / 2) << n;
    EXPECT_EQ(Enters(0.1, n).size(), (n + 9) / 10) << n;
    EXPECT_EQ(Enters(1e-6, n).size(), 1) << n;
    EXPECT_TRUE(Enters(1, n).IsAll()) << n;
    EXPECT_EQ(Enters(7, n).size(), std::min<int64_t>(7, n)) << n;
  }
}

TEST(RandomDropPolicy, TheSeedDecides) {
  EXPECT_EQ(Enters(0.5, 1000, 3), Enters(0.5, 1000, 3));
  EXPECT_NE(Enters(0.5, 1000, 3), Enters(0.5, 1000, 4));
  int64_t first_half = Enters(0.5, 1000, 3).Intersect(TokenSet::Range(0, 500, 1000)).size();
  EXPECT_GT(first_half, 200);
  EXPECT_LT(first_half, 300);
}

TEST(RandomDropPolicy, BeforeTheModelOrBeforeLayers) {
  RandomDropPolicy input({});
  RandomDropPolicy layers({.layers = {1, 5}, .keep = {0.5, 30}, .compact = false});
  EXPECT_TRUE(input.Facts().compact_positions);
  EXPECT_FALSE(layers.Facts().compact_positions);
  EXPECT_FALSE(RandomDropPolicy({.layers = {}, .compact = false}).Facts().compact_positions);
  Scene scene(100);
  EXPECT_TRUE(layers.Input(100, *scene.be).IsAll());
  TokenSet first = TokenSet::All(100);
  for (int layer = 0; layer < 8; ++layer) {
    Scene at(100, layer);
    EXPECT_TRUE(input.NeedsAt(Phase::kPrefill, layer).empty());
    EXPECT_TRUE(layers.NeedsAt(Phase::kPrefill, layer).empty());
    EXPECT_TRUE(input.BeforeLayer(at.seen, *at.be).IsAll());
    const TokenSet kept = layers.BeforeLayer(at.seen, *at.be);
    EXPECT_EQ(kept.size(), layer == 1 ? 50 : layer == 5 ? 30 : 100) << layer;
    EXPECT_TRUE(kept.Contains(99));
    if (layer == 1) first = kept;
    if (layer == 5) {  // drawn anew
      EXPECT_NE(kept.Intersect(first).size(), 30);
    }
  }
}

TEST(RandomDropMethod, Settings) {
  const MethodInfo method = RandomDropMethod();
  EXPECT_EQ(SettingsOf(method, "random"), "random:keep=0.5,layers=input,seed=0,positions=compact,min=1024");
  EXPECT_EQ(SettingsOf(method, "random:positions=original,seed=9007199254740992,keep=.125"),
            "random:keep=0.125,layers=input,seed=9007199254740992,positions=original,min=1024");
  EXPECT_EQ(SettingsOf(method, "random:layers=10/20/30,keep=8192/4096/2048"),
            "random:keep=8192/4096/2048,layers=10/20/30,seed=0,positions=original,min=1024");
  EXPECT_THAT(SettingsOf(method, "random:layers=10/20"), HasSubstr("keep=0.5/0.5,layers=10/20,"));
  EXPECT_EQ(MakeMethod(method, "random", Llama8B(), 1023).reason,
            "1023 prompt tokens are below its break-even of 1024");
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_EQ(MakeMethod(method, "random", windowed).reason, "");  // looks at no score
}

TEST(RandomDropMethod, Refuses) {
  const MethodInfo method = RandomDropMethod();
  const std::pair<const char*, const char*> bad[] = {
      {"random:keep=0", "'0' is not a number"},
      {"random:keep=.5/.5", "keep has 2 values for 0 layers"},
      {"random:layers=10/20,keep=.5/.5/.5", "keep has 3 values for 2 layers"},
      {"random:layers=0", "'0' is not a whole number from 1 to 31"},
      {"random:layers=20/10", "must ascend"},
      {"random:layers=none", "layers=none drops nothing"},
      {"random:layers=10,positions=compact", "it can be original"},
      {"random:positions=none", "it can be compact, original"},
      {"random:seed=-1", "seed=-1"},
      {"random:seed=0.5", "seed=0.5"},
      {"random:runs=5", "unknown key 'runs'"},
  };
  for (const auto& [spec, part] : bad) EXPECT_THAT(RefusalOf(method, spec), HasSubstr(part)) << spec;
}

}  // namespace
}  // namespace coppice
