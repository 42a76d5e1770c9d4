#include "policies/methods/h2o.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "policies/compose.h"
#include "policies/retain_test_support.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using Lists = std::vector<std::vector<float>>;
using testing::HasSubstr;

TEST(H2oPolicy, KeepsHeavyHittersAndTheRecent) {
  H2oPolicy h2o({.heavy = {0.2}, .recent = {0.2}});
  EvictedCache cache(h2o, 2);
  ASSERT_TRUE(cache.Prefill(10, {{4, 1, 0, 3, 0, 0, 5, 0, 9, 9}, {0, 2, 0, 0, 0, 2, 1, 2, 9, 9}}));
  EXPECT_EQ(cache.positions(0), (Rows{0, 6, 8, 9}));
  EXPECT_EQ(cache.positions(1), (Rows{1, 5, 8, 9}));  // of three equal ones the earlier two

  // 8 is no longer recent, but heavy; in the second list 1 has drawn more since.
  ASSERT_TRUE(cache.Step({{0, 0, 0, 0, 1}, {1, 0, 0, 0, 0}}));
  EXPECT_EQ(cache.positions(0), (Rows{6, 8, 9, 10}));
  EXPECT_EQ(cache.positions(1), (Rows{1, 8, 9, 10}));
  // 9 + 0 against 1: a sum, not the last step's mass.
  ASSERT_TRUE(cache.Step({{8, 0, 0, 0, 1}, {8, 0, 1, 0, 0}}));
  EXPECT_EQ(cache.positions(0), (Rows{6, 8, 10, 11}));  // 13, 9, 9: the later of the equal two left
  EXPECT_EQ(cache.positions(1), (Rows{1, 9, 10, 11}));  // 11, 9, 10
}

// 7.3: the budget after each step, recent tokens, and the very rows of a plain simulation.
TEST(H2oPolicy, FollowsAPlainSimulation) {
  for (const bool per_query : {false, true}) {
    constexpr int kTokens = 103, kHeavy = 20, kRecent = 30, kKvHeads = 3;
    H2oPolicy h2o({.heavy = {0.2}, .recent = {30}, .per_query = per_query});
    EvictedCache cache(h2o, kKvHeads);
    Noise noise(per_query ? 7 : 8);
    struct Of {
      float mass = 0;
      int born = 0;
    };
    std::vector<std::map<int32_t, Of>> held(kKvHeads);
    for (int step = 0; step < 80; ++step) {
      const int queries = kTokens + step;
      const int64_t rows = step == 0 ? kTokens : cache.rows() + 1;
      const Lists mass = noise.Lists(kKvHeads, rows);
      step == 0 ? cache.Prefill(kTokens, mass) : cache.Step(mass);
      for (size_t g = 0; g < kKvHeads; ++g) {
        for (int p = step == 0 ? 0 : queries - 1; p < queries; ++p) held[g][p] = {0, p};
        size_t row = 0;
        for (auto& [position, of] : held[g]) of.mass += mass[g][row++];
        while (held[g].size() > kHeavy + kRecent) {
          auto worst = held[g].end();
          float least = 0;
          for (auto it = held[g].begin(); it->first < queries - kRecent; ++it) {
            const float seen = per_query ? static_cast<float>(queries - it->second.born) : 1.0f;
            if (const float s = it->second.mass / seen; worst == held[g].end() || s <= least) {
              worst = it;
              least = s;
            }
          }
          held[g].erase(worst);
        }
        Rows expected;
        for (const auto& [position, of] : held[g]) expected.push_back(position);
        ASSERT_EQ(cache.positions(g), expected) << step << " " << per_query;
        for (int p = queries - kRecent; p < queries; ++p) ASSERT_TRUE(cache.Holds(p, g));
      }
    }
    EXPECT_EQ(cache.rows(), kHeavy + kRecent);
  }
}

// Each query gives a mass of 1 per head: before anything is evicted, sums add up to queries times the group.
TEST(H2oPolicy, MassIsConserved) {
  constexpr int64_t kTokens = 20, kDim = 4;
  const AttentionShape shape{.heads = 3, .kv_heads = 1, .head_dim = kDim, .scale = 0.5f};
  const std::unique_ptr<Backend> be = MakeBackend("reference", {});
  Noise noise(5);
  H2oPolicy h2o({.heavy = {100}, .recent = {100}});
  EvictedCache cache(h2o, 1, 0);
  std::vector<float> keys;
  Rows positions;
  for (int64_t n = kTokens; n < kTokens + 10; ++n) {
    const int64_t m = n == kTokens ? kTokens : 1;
    for (const float x : noise.Row(m * kDim)) keys.push_back(4 * x - 2);
    while (static_cast<int64_t>(positions.size()) < n)
      positions.push_back(static_cast<int32_t>(positions.size()));
    const std::vector<float> queries = noise.Row(m * 3 * kDim);
    Lists mass = {std::vector<float>(static_cast<size_t>(n))};
    be->AttentionMass({.shape = shape,
                       .queries = {queries.data(), DType::kF32, m, 3 * kDim},
                       .keys = {keys.data(), DType::kF32, n, kDim},
                       .values = {keys.data(), DType::kF32, n, kDim},
                       .query_positions = std::span(positions).last(static_cast<size_t>(m)),
                       .key_positions = positions},
                      {}, MassPool::kSum, {mass.front().data(), DType::kF32, 1, n});
    EXPECT_FALSE(n == kTokens ? cache.Prefill(n, mass) : cache.Step(mass));
    const std::vector<float>& sums = h2o.MassOf(0).front();
    ASSERT_EQ(static_cast<int64_t>(sums.size()), n);
    EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), 3.0 * static_cast<double>(n), 1e-4);
  }
}

TEST(H2oPolicy, NothingLeavesWhatFits) {
  Noise noise(2);
  H2oPolicy exact({.heavy = {60}, .recent = {40}});
  EvictedCache cache(exact, 2);
  EXPECT_FALSE(cache.Prefill(100, noise.Lists(2, 100)));
  EXPECT_EQ(cache.rows(), 100);
  EXPECT_TRUE(cache.Step(noise.Lists(2, 101)));  // the step after fills the budget again
  EXPECT_EQ(cache.rows(), 100);
  H2oPolicy one_less({.heavy = {59}, .recent = {40}});
  EvictedCache smaller(one_less, 2);
  EXPECT_TRUE(smaller.Prefill(100, noise.Lists(2, 100)));
  EXPECT_EQ(smaller.rows(), 99);
}

TEST(H2oPolicy, HeavyZeroIsALocalWindow) {
  Noise noise(3);
  H2oPolicy window({.heavy = {0}, .recent = {0.1}});
  EvictedCache cache(window, 2);
  cache.Prefill(50, noise.Lists(2, 50));
  EXPECT_EQ(cache.positions(1), (Rows{45, 46, 47, 48, 49}));
  for (int step = 0; step < 7; ++step) cache.Step(noise.Lists(2, cache.rows() + 1));
  EXPECT_EQ(cache.positions(0), (Rows{52, 53, 54, 55, 56}));

  H2oPolicy hitters({.heavy = {0.1}, .recent = {0}});  // the last row stays even so
  EvictedCache heavy(hitters, 1);
  heavy.Prefill(10, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 0}});
  EXPECT_EQ(heavy.positions(), (Rows{9}));
}

// A sum favours rows that came early, which all queries saw; the mean does not.
TEST(H2oPolicy, CountsTheQueriesThatSawARow) {
  const Lists mass = {{4, 3, 3, 1, 0, 0}};
  H2oPolicy sum({.heavy = {1.0 / 6}, .recent = {2.0 / 6}});
  EvictedCache summed(sum, 1);
  summed.Prefill(6, mass);
  EXPECT_EQ(summed.positions(), (Rows{0, 4, 5}));
  H2oPolicy mean({.heavy = {1.0 / 6}, .recent = {2.0 / 6}, .per_query = true});
  EvictedCache averaged(mean, 1);
  averaged.Prefill(6, mass);  // 4/6, 3/5, 3/4, 1/3
  EXPECT_EQ(averaged.positions(), (Rows{2, 4, 5}));
}

TEST(H2oPolicy, PinnedRowsStay) {
  Noise noise(4);
  H2oPolicy h2o({.heavy = {5}, .recent = {5}});
  EvictedCache cache(h2o, 2);
  cache.is_protected = [](int32_t p) { return p < 3 || (p >= 20 && p < 32); };
  cache.Prefill(64, noise.Lists(2, 64));
  EXPECT_EQ(cache.rows(), 20);  // 15 protected, 5 recent: more than the budget, so no heavy hitter
  for (int step = 0; step < 30; ++step) {
    cache.Step(noise.Lists(2, cache.rows() + 1));
    ASSERT_EQ(cache.rows(), 20);
    for (const int32_t p : {0, 1, 2, 20, 25, 31}) ASSERT_TRUE(cache.Holds(p, 0) && cache.Holds(p, 1)) << p;
  }
}

TEST(H2oPolicy, ANanNeverDisplacesANumber) {
  H2oPolicy h2o({.heavy = {2}, .recent = {2}});
  EvictedCache cache(h2o, 1);
  cache.Prefill(7, {{kNan, 0, 1, kNan, 2, 0, kNan}});
  EXPECT_EQ(cache.positions(), (Rows{2, 4, 5, 6}));
  cache.Step({{5, kNan, 0, 0, 0}});  // spoils row 4; row 6 was spoilt before it
  EXPECT_EQ(cache.positions(), (Rows{2, 5, 6, 7}));
  cache.Step({{0, 0, 0, 0, 0}});
  EXPECT_EQ(cache.positions(), (Rows{2, 5, 7, 8}));
}

// SDTP + H2O: the budget is a share of the prompt, not of what is left of it in a layer.
TEST(H2oPolicy, BudgetsAreSharesOfThePromptThatEntered) {
  H2oPolicy h2o({.heavy = {0.2}, .recent = {0.2}});
  const auto retain = [&](int64_t rows, int layer) {
    Scene scene(rows, layer);
    scene.seen.prompt_tokens = 100;
    const std::vector<float> mass(static_cast<size_t>(rows), 1.0f);
    scene.Mass(h2o.NeedsAt(Phase::kPrefill, layer).masses.front(), {mass, mass});
    return h2o.Retain(scene.seen, {.rows = rows, .positions = {scene.seen.positions}, .pinned = {}},
                      *scene.be);
  };
  EXPECT_EQ(retain(100, 0)->rows.front().size(), 40);
  EXPECT_EQ(retain(81, 1)->rows.front().size(), 40);
  EXPECT_EQ(retain(41, 2)->rows.front().size(), 40);
  EXPECT_FALSE(retain(40, 3));
  EXPECT_FALSE(retain(25, 4));
}

TEST(H2oPolicy, AsksForEveryColumnInPrefillAndOneQueryInDecode) {
  const H2oPolicy h2o({});
  EXPECT_EQ(h2o.NeedsAt(Phase::kPrefill, 0).masses,
            (std::vector<Needs::Mass>{{.queries = Needs::kAllQueries, .per_kv_head = true}}));
  EXPECT_EQ(h2o.NeedsAt(Phase::kDecode, 31).masses,
            (std::vector<Needs::Mass>{{.queries = 1, .per_kv_head = true}}));
}

// Compose checks the answer against the protection that it filled in.
TEST(H2oPolicy, KeepsWhatComposePins) {
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  policies.push_back(std::make_unique<H2oPolicy>(H2oConfig{.heavy = {2}, .recent = {2}}));
  const auto policy = Compose(std::move(policies), {.first = 1, .last = 3, .spans = {{4, 6}}});
  Scene scene(12);
  scene.Mass({.queries = Needs::kAllQueries, .per_kv_head = true},
             {{0, 9, 8, 7, 0, 0, 6, 0, 0, 0, 0, 0}, {0, 0, 0, 7, 0, 0, 6, 0, 0, 0, 0, 0}});
  const auto kept =
      policy->Retain(scene.seen, {.rows = 12, .positions = {scene.seen.positions}, .pinned = {}}, *scene.be);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->rows[0].ToRows(), (Rows{0, 4, 5, 9, 10, 11}));
  EXPECT_EQ(kept->rows[1].ToRows(), (Rows{0, 4, 5, 9, 10, 11}));
}

TEST(H2oMethod, Settings) {
  const MethodInfo method = H2oMethod();
  EXPECT_EQ(method.traits, unsigned{kEvicts});
  const auto settings = [&](const char* spec) { return MakeMethod(method, spec, Llama8B(), 32768).settings; };
  EXPECT_EQ(settings("h2o"), "h2o:keep=0.4,heavy=0.2,recent=0.2,norm=sum,min=1024");
  EXPECT_EQ(settings("h2o:heavy=0"), "h2o:keep=0.2,heavy=0,recent=0.2,norm=sum,min=1024");
  EXPECT_EQ(settings("h2o:keep=401"), "h2o:keep=401,heavy=200,recent=201,norm=sum,min=1024");
  EXPECT_EQ(settings("h2o:heavy=200,recent=0.5"), "h2o:keep=16584,heavy=200,recent=0.5,norm=sum,min=1024");
  for (const char* spec :
       {"h2o", "h2o:heavy=0", "h2o:keep=0.3,norm=count", "h2o:keep=5", "h2o:heavy=0.1,recent=64",
        "h2o:heavy=1,recent=1", "h2o:heavy=0,recent=2", "h2o:recent=1e-9,heavy=0,min=0"}) {
    SettingsOf(method, spec);
  }
}

TEST(H2oMethod, RefusesWhatItCannotDo) {
  const MethodInfo method = H2oMethod();
  const std::pair<const char*, const char*> bad[] = {
      {"h2o:keep=-0.1", "keep=-0.1 is not a number"},
      {"h2o:keep=0", "heavy=0,recent=0 keeps nothing"},
      {"h2o:keep=nan", "keep=nan"},
      {"h2o:keep=100.5", "keep=100.5 is neither a share up to 1 nor a whole number of tokens"},
      {"h2o:keep=3", "keep=3 is too few tokens to halve; set heavy and recent"},
      {"h2o:heavy=1.5", "heavy=1.5 is neither"},
      {"h2o:heavy=-1", "heavy=-1 is not a number"},
      {"h2o:recent=1e30", "recent=1e30"},
      {"h2o:heavy=0,recent=0", "keeps nothing"},
      {"h2o:norm=max", "norm=max is not there; it can be sum, count"},
      {"h2o:min=-1", "min=-1"},
      {"h2o:budget=3", "unknown key 'budget'; it has keep, heavy, recent, norm, min"},
  };
  for (const auto& [spec, part] : bad) EXPECT_THAT(RefusalOf(method, spec), HasSubstr(part)) << spec;
}

TEST(H2oMethod, StandsAsideWithAReason) {
  const MethodInfo method = H2oMethod();
  const auto reason = [&](const char* spec, int64_t tokens, int32_t window = 0) {
    ModelShape shape = Llama8B();
    SetInAll(shape, &LayerShape::window, window);
    const MethodInstance made = MakeMethod(method, spec, shape, tokens);
    EXPECT_EQ(made.policy == nullptr, !made.reason.empty());
    return made.reason;
  };
  EXPECT_EQ(reason("h2o", 1023), "1023 prompt tokens are below its break-even of 1024");
  EXPECT_EQ(reason("h2o", 1024), "");
  EXPECT_EQ(reason("h2o:keep=2000", 2000), "2000 prompt tokens fit its budget");
  EXPECT_EQ(reason("h2o:keep=2000", 2001), "");
  EXPECT_EQ(reason("h2o:keep=1", 2001), "2001 prompt tokens fit its budget");  // though 1000 + 1000 do not
  EXPECT_EQ(reason("h2o", 5000, 4096),
            "the model attends in a sliding window of 4096 tokens, shorter than the prompt");
}

}  // namespace
}  // namespace coppice
