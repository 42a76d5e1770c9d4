#include "policies/methods/snapkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/compose.h"
#include "policies/retain_test_support.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using Lists = std::vector<std::vector<float>>;
using testing::HasSubstr;

// What stays of a prompt with these masses.
Rows Kept(const SnapKvConfig& config, const std::vector<float>& mass) {
  SnapKvPolicy snapkv(config);
  EvictedCache cache(snapkv, 1);
  cache.Prefill(static_cast<int64_t>(mass.size()), {mass});
  return cache.positions();
}

TEST(SnapKvPolicy, PoolsTheScoresOfThePrefix) {
  SnapKvConfig config{.cap = {5}, .window = 2, .kernel = 3};
  // Prefix 0 6 0 0 0 0 7 0, window 9 9. Means of three: 2 2 2 0 0 7/3 7/3 7/3. The window's mass pools
  // nowhere.
  EXPECT_EQ(Kept(config, {0, 6, 0, 0, 0, 0, 7, 0, 9, 9}), (Rows{5, 6, 7, 8, 9}));
  // A border counts as 0: row 0 has (0 + 6 + 5) / 3, not (6 + 5) / 2; so 2 beats it with (5 + 7) / 3.
  config.cap = {3};
  EXPECT_EQ(Kept(config, {6, 5, 0, 7, 0, 0, 0, 0, 9, 9}), (Rows{2, 8, 9}));
  config.max_pool = true;
  EXPECT_EQ(Kept(config, {6, 5, 0, 7, 0, 0, 0, 0, 9, 9}), (Rows{2, 8, 9}));  // 6 6 7 7 7: the earliest 7
  config.kernel = 1;
  EXPECT_EQ(Kept(config, {6, 5, 0, 7, 0, 0, 0, 0, 9, 9}), (Rows{3, 8, 9}));
}

TEST(SnapKvPolicy, MatchesAPlainPool) {
  Noise noise(1);
  for (const bool max_pool : {false, true}) {
    for (const int kernel : {1, 3, 5, 7, 21}) {
      constexpr int64_t kTokens = 90, kWindow = 8, kCap = 30;
      const Lists mass = noise.Lists(3, kTokens);
      SnapKvPolicy snapkv({.cap = {kCap}, .window = kWindow, .kernel = kernel, .max_pool = max_pool});
      EvictedCache cache(snapkv, 3);
      cache.Prefill(kTokens, mass);
      for (size_t g = 0; g < 3; ++g) {
        std::vector<std::pair<float, int32_t>> ranked;
        for (int32_t j = 0; j < kTokens - kWindow; ++j) {
          float sum = 0, most = 0;
          for (int32_t i = j - kernel / 2; i <= j + kernel / 2; ++i) {
            const float s = i < 0 || i >= kTokens - kWindow ? 0 : mass[g][static_cast<size_t>(i)];
            sum += s;
            most = std::max(most, s);
          }
          ranked.emplace_back(max_pool ? -most : -sum / static_cast<float>(kernel), j);
        }
        std::sort(ranked.begin(), ranked.end());
        Rows expected;
        for (size_t i = 0; i < kCap - kWindow; ++i) expected.push_back(ranked[i].second);
        for (int32_t j = kTokens - kWindow; j < kTokens; ++j) expected.push_back(j);
        std::sort(expected.begin(), expected.end());
        EXPECT_EQ(cache.positions(g), expected) << kernel << " " << max_pool << " " << g;
      }
    }
  }
}

TEST(SnapKvPolicy, NothingLeavesBelowTheCap) {
  Noise noise(2);
  for (const int64_t tokens : {1, 5, 39, 40}) {
    SnapKvPolicy snapkv({.cap = {40}, .window = 8});
    EvictedCache cache(snapkv, 2);
    EXPECT_FALSE(cache.Prefill(tokens, noise.Lists(2, tokens))) << tokens;
  }
  SnapKvPolicy snapkv({.cap = {40}, .window = 8});
  EvictedCache cache(snapkv, 2);
  EXPECT_TRUE(cache.Prefill(41, noise.Lists(2, 41)));
  EXPECT_EQ(cache.rows(), 40);
}

TEST(SnapKvPolicy, DecodeNeverEvicts) {
  const SnapKvPolicy snapkv({});
  EXPECT_TRUE(snapkv.RetainsAt(Phase::kPrefill, 0));
  EXPECT_FALSE(snapkv.RetainsAt(Phase::kDecode, 0));
  EXPECT_TRUE(snapkv.NeedsAt(Phase::kDecode, 0).empty());
  EXPECT_EQ(snapkv.NeedsAt(Phase::kPrefill, 31).masses,
            (std::vector<Needs::Mass>{{.queries = 32, .per_kv_head = true}}));
}

TEST(SnapKvPolicy, TiesNanAndPinnedRows) {
  const SnapKvConfig config{.cap = {4}, .window = 1, .kernel = 1};
  EXPECT_EQ(Kept(config, {1, 1, 1, 1, 1, 1}), (Rows{0, 1, 2, 5}));
  EXPECT_EQ(Kept(config, {kNan, 1, kNan, 3, 2, kNan}), (Rows{1, 3, 4, 5}));
  // A NaN leaves its neighbours their own scores.
  EXPECT_EQ(Kept({.cap = {4}, .window = 1, .kernel = 3}, {0, 0, 0, 5, kNan, 5, 0, 0, 0, 0}),
            (Rows{2, 3, 4, 9}));
  EXPECT_EQ(Kept(config, {kNan, kNan, kNan, kNan, kNan, kNan}), (Rows{0, 1, 2, 5}));

  SnapKvPolicy snapkv(config);
  EvictedCache cache(snapkv, 2);
  cache.is_protected = [](int32_t p) { return p >= 2 && p < 8; };
  cache.Prefill(12, {std::vector<float>(12, 1), std::vector<float>(12, 2)});
  EXPECT_EQ(cache.positions(0), (Rows{2, 3, 4, 5, 6, 7, 11}));
}

// TOVA: the last query, summed over all heads, one set for every kv head.
TEST(SnapKvPolicy, OneChoiceForAllHeads) {
  SnapKvPolicy tova({.cap = {3}, .window = 1, .kernel = 1, .per_kv_head = false});
  EXPECT_EQ(tova.NeedsAt(Phase::kPrefill, 4).masses, (std::vector<Needs::Mass>{{.queries = 1}}));
  EvictedCache cache(tova, 2);
  const std::optional<Retained> kept = cache.Prefill(6, {{0, 4, 1, 3, 2, 0}});
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->rows.size(), 1u);
  EXPECT_EQ(cache.positions(1), (Rows{1, 3, 5}));
}

TEST(SnapKvPolicy, CapsMayBeShares) {
  Noise noise(3);
  SnapKvPolicy snapkv({.cap = {0.25}, .window = 8});
  EvictedCache first(snapkv, 1, 0);
  first.Prefill(201, noise.Lists(1, 201));
  EXPECT_EQ(first.rows(), 50);
  EvictedCache later(snapkv, 1, 1);  // another method left less: still a share of the prompt
  later.Prefill(90, noise.Lists(1, 90));
  EXPECT_EQ(later.rows(), 50);
  // A share smaller than the window: the window shrinks, the cap holds.
  SnapKvPolicy tiny({.cap = {0.05}, .window = 8});
  EvictedCache cache(tiny, 1);
  cache.Prefill(100, noise.Lists(1, 100));
  EXPECT_EQ(cache.positions(), (Rows{95, 96, 97, 98, 99}));
  SnapKvPolicy least({.cap = {0.001}, .window = 8});
  EvictedCache one(least, 1);
  one.Prefill(100, noise.Lists(1, 100));
  EXPECT_EQ(one.positions(), (Rows{99}));
}

// 7.5: from max to min in a line, the cap in the mean.
TEST(SnapKvPolicy, ThePyramidFallsFromMaxToMin) {
  const SnapKvPolicy pyramid({.cap = {1024}, .window = 32, .pyramid = true, .beta = 20});
  EXPECT_EQ(pyramid.Budget(0, 32, 100000), 32 + 1935);  // 2 * 992 - 49
  EXPECT_EQ(pyramid.Budget(31, 32, 100000), 32 + 49);   // 992 / 20
  int64_t sum = 0;
  for (int l = 0; l < 32; ++l) {
    sum += pyramid.Budget(l, 32, 100000);
    EXPECT_TRUE(l == 0 || pyramid.Budget(l, 32, 100000) < pyramid.Budget(l - 1, 32, 100000)) << l;
  }
  EXPECT_NEAR(static_cast<double>(sum) / 32, 1024, 1);

  // A prompt shorter than max: early layers keep all of it, and the mean is still the cap.
  EXPECT_EQ(pyramid.Budget(0, 32, 1500), 1500);
  EXPECT_EQ(pyramid.Budget(31, 32, 1500), 2 * 1024 - 1500);
  EXPECT_EQ(pyramid.Budget(0, 1, 100000), 1024);  // no line through one layer
  const SnapKvPolicy flat({.cap = {1024}, .window = 32});
  EXPECT_EQ(flat.Budget(0, 32, 100000), 1024);
  EXPECT_EQ(flat.Budget(31, 32, 100000), 1024);
  const SnapKvPolicy equal({.cap = {1024}, .window = 32, .pyramid = true, .beta = 1});
  EXPECT_EQ(equal.Budget(0, 32, 100000), 1024);
  EXPECT_EQ(equal.Budget(31, 32, 100000), 1024);

  Noise noise(4);
  SnapKvPolicy acts({.cap = {64}, .window = 4, .pyramid = true, .beta = 6});
  for (const auto& [layer, rows] : {std::pair{0, 4 + 110}, {31, 4 + 10}}) {
    EvictedCache cache(acts, 2, layer);
    cache.Prefill(300, noise.Lists(2, 300));
    EXPECT_EQ(cache.rows(), rows);
  }
}

TEST(SnapKvPolicy, KeepsWhatComposePins) {
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  policies.push_back(std::make_unique<SnapKvPolicy>(SnapKvConfig{.cap = {5}, .window = 1, .kernel = 1}));
  const auto policy = Compose(std::move(policies), {.first = 1, .last = 2, .spans = {{4, 5}}});
  Scene scene(12);
  scene.Mass({.queries = 1, .per_kv_head = true},
             {{0, 9, 8, 7, 0, 0, 6, 0, 0, 0, 0, 0}, {0, 0, 0, 7, 0, 0, 8, 0, 0, 0, 0, 0}});
  const auto kept =
      policy->Retain(scene.seen, {.rows = 12, .positions = {scene.seen.positions}, .pinned = {}}, *scene.be);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->rows[0].ToRows(), (Rows{0, 1, 4, 10, 11}));
  EXPECT_EQ(kept->rows[1].ToRows(), (Rows{0, 4, 6, 10, 11}));
}

TEST(SnapKvMethod, Settings) {
  const MethodInfo method = SnapKvMethod();
  EXPECT_EQ(method.traits, unsigned{kEvicts});
  EXPECT_EQ(MakeMethod(method, "snapkv", Llama8B(), 32768).settings,
            "snapkv:cap=1024,window=32,kernel=5,pool=avg,heads=kv,schedule=flat,beta=20,min=1024");
  for (const char* spec :
       {"snapkv", "snapkv:cap=0.4", "snapkv:cap=1,window=64", "snapkv:window=1,kernel=1,heads=all",
        "snapkv:schedule=pyramid,beta=14", "snapkv:cap=4096,kernel=7,pool=max,min=0"}) {
    SettingsOf(method, spec);
  }
}

TEST(SnapKvMethod, RefusesWhatItCannotDo) {
  const MethodInfo method = SnapKvMethod();
  const std::pair<const char*, const char*> bad[] = {
      {"snapkv:cap=0", "cap=0 keeps nothing"},
      {"snapkv:cap=-1", "cap=-1 is not a number"},
      {"snapkv:cap=32", "window=32 leaves nothing of cap=32"},
      {"snapkv:cap=99.5", "cap=99.5 is neither"},
      {"snapkv:window=0", "window=0"},
      {"snapkv:window=2000", "window=2000 leaves nothing of cap=1024"},
      {"snapkv:kernel=4", "kernel=4 must be odd"},
      {"snapkv:kernel=0", "kernel=0"},
      {"snapkv:pool=sum", "it can be avg, max"},
      {"snapkv:heads=q", "it can be kv, all"},
      {"snapkv:schedule=cone", "it can be flat, pyramid"},
      {"snapkv:beta=0", "beta=0"},
  };
  for (const auto& [spec, part] : bad) EXPECT_THAT(RefusalOf(method, spec), HasSubstr(part)) << spec;
}

TEST(SnapKvMethod, StandsAsideWithAReason) {
  const MethodInfo method = SnapKvMethod();
  EXPECT_EQ(MakeMethod(method, "snapkv:cap=500", Llama8B(), 1023).reason,
            "1023 prompt tokens are below its break-even of 1024");
  EXPECT_EQ(MakeMethod(method, "snapkv", Llama8B(), 1024).reason, "1024 prompt tokens fit its cap of 1024");
  EXPECT_EQ(MakeMethod(method, "snapkv:cap=1", Llama8B(), 5000).reason,
            "5000 prompt tokens fit its cap of 1");
  EXPECT_EQ(MakeMethod(method, "snapkv", Llama8B(), 1025).reason, "");
  EXPECT_NE(MakeMethod(method, "snapkv", Llama8B(), 1025).policy, nullptr);
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_THAT(MakeMethod(method, "snapkv", windowed, 5000).reason, HasSubstr("sliding window of 4096"));
}

}  // namespace
}  // namespace coppice
