#include "policies/methods/streamingllm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/compose.h"
#include "policies/retain_test_support.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using testing::HasSubstr;

TEST(StreamingLlmPolicy, KeepsTheFirstAndTheLast) {
  StreamingLlmPolicy policy({.sink = 2, .recent = 3});
  EvictedCache cache(policy, 1);
  const std::optional<Retained> cut = cache.Prefill(10, {});
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->close_gap);
  ASSERT_EQ(cut->rows.size(), 1u);  // one set for all kv heads
  EXPECT_EQ(cut->rows.front().ToRows(), (Rows{0, 1, 7, 8, 9}));
  EXPECT_EQ(cache.positions(), (Rows{5, 6, 7, 8, 9}));  // the sinks moved up

  const std::optional<Retained> step = cache.Step({});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->rows.front().ToRows(), (Rows{0, 1, 3, 4, 5}));
  EXPECT_EQ(cache.positions(), (Rows{6, 7, 8, 9, 10}));
}

// 7.2: never more than sink + recent rows, at slots; dense while everything fits.
TEST(StreamingLlmPolicy, TheCacheStaysSmallAndItsPositionsAreSlots) {
  for (const int64_t tokens : {1, 3, 11, 12, 13, 40}) {
    StreamingLlmPolicy policy({.sink = 4, .recent = 8});
    EvictedCache cache(policy, 2);
    const std::optional<Retained> cut = cache.Prefill(tokens, {});
    EXPECT_EQ(cut.has_value(), tokens > 12);
    for (int64_t n = tokens; n < tokens + 40; ++n) {
      ASSERT_EQ(cache.rows(), std::min<int64_t>(n, 12));
      for (int64_t row = 0; row < cache.rows(); ++row) {
        ASSERT_EQ(cache.positions(1)[static_cast<size_t>(row)], n - cache.rows() + row);
      }
      ASSERT_EQ(cache.Step({}).has_value(), n + 1 > 12) << n;
    }
  }
}

TEST(StreamingLlmPolicy, OddSizes) {
  StreamingLlmPolicy window({.sink = 0, .recent = 1});
  EvictedCache cache(window, 1);
  cache.Prefill(5, {});
  EXPECT_EQ(cache.positions(), (Rows{4}));
  cache.Step({});
  EXPECT_EQ(cache.positions(), (Rows{5}));
  StreamingLlmPolicy wide({.sink = 100, .recent = 100});
  EvictedCache whole(wide, 1);
  EXPECT_FALSE(whole.Prefill(150, {}));
  EXPECT_EQ(whole.rows(), 150);
}

TEST(StreamingLlmPolicy, LayersRememberTheirOwnRows) {
  StreamingLlmPolicy policy({.sink = 1, .recent = 2});
  EvictedCache late(policy, 1, 5), early(policy, 1, 2);
  late.is_protected = [](int32_t p) { return p == 3; };
  late.Prefill(8, {});
  early.Prefill(8, {});
  EXPECT_EQ(late.rows(), 4);
  EXPECT_EQ(early.rows(), 3);
  late.Step({});
  early.Step({});
  EXPECT_EQ(late.rows(), 4);
  EXPECT_EQ(early.rows(), 3);
}

// Protected rows move up with the sinks. The ones at the prompt's end stay when the window leaves them
// behind.
TEST(StreamingLlmPolicy, PinnedRowsStayWhereverTheyMoved) {
  StreamingLlmPolicy policy({.sink = 2, .recent = 6});
  EvictedCache cache(policy, 1);
  cache.is_protected = [](int32_t p) { return p == 0 || p == 10 || p == 11 || (p >= 36 && p < 40); };
  // Which tokens the rows hold; the cache itself knows only where they stand now.
  Rows tokens(40);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto follow = [&](const std::optional<Retained>& answer) {
    if (!answer) return;
    Rows kept;
    for (const int32_t row : answer->rows.front().ToRows()) kept.push_back(tokens[static_cast<size_t>(row)]);
    tokens = kept;
  };
  follow(cache.Prefill(40, {}));
  EXPECT_EQ(tokens, (Rows{0, 1, 10, 11, 34, 35, 36, 37, 38, 39}));
  for (int32_t next = 40; next < 70; ++next) {
    tokens.push_back(next);
    follow(cache.Step({}));
    ASSERT_EQ(static_cast<int64_t>(tokens.size()), cache.rows());
  }
  EXPECT_EQ(tokens, (Rows{0, 1, 10, 11, 36, 37, 38, 39, 64, 65, 66, 67, 68, 69}));
}

// The head of streamingllm.cpp: sinks that move up and recent keys that stay give the products of the paper's
// rule, where every key is rotated by its slot and the query by its own.
TEST(StreamingLlmPolicy, MovedSinksGiveTheProductsOfSlots) {
  constexpr int kDim = 8, kPositions = 64, kSink = 2, kRecent = 5, kCache = kSink + kRecent, kLast = 50;
  const std::unique_ptr<Backend> be = MakeBackend("reference", {});
  Tensor cosine(DType::kF32, kPositions, kDim / 2), sine(DType::kF32, kPositions, kDim / 2);
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(100.0, -2.0 * i / kDim);
      cosine.mutable_view().Row<float>(p)[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
      sine.mutable_view().Row<float>(p)[static_cast<size_t>(i)] = static_cast<float>(std::sin(angle));
    }
  }
  const RopeTable table{.cos = cosine.view(), .sin = sine.view()};
  Noise noise(6);
  const std::vector<float> raw = noise.Row((kCache + 1) * kDim);  // the keys in the cache, then the query
  const auto products = [&](const Rows& positions) {
    std::vector<float> x = raw;
    be->Rope({x.data(), DType::kF32, kCache + 1, kDim}, kDim, positions, table);
    std::vector<float> dots;
    for (size_t key = 0; key < kCache; ++key) {
      dots.push_back(std::inner_product(x.begin() + kCache * kDim, x.end(),
                                        x.begin() + static_cast<std::ptrdiff_t>(key * kDim), 0.0f));
    }
    return dots;
  };
  const std::vector<float> slots = products({0, 1, 2, 3, 4, 5, 6, 6});

  StreamingLlmPolicy policy({.sink = kSink, .recent = kRecent});
  EvictedCache cache(policy, 1);
  cache.Prefill(kLast - 9, {});
  for (int step = 0; step < 10; ++step) cache.Step({});
  Rows ours = cache.positions();
  ours.push_back(kLast);  // the query's position, never moved
  EXPECT_EQ(ours, (Rows{44, 45, 46, 47, 48, 49, 50, 50}));
  const std::vector<float> moved = products(ours);
  const std::vector<float> unmoved = products({0, 1, 46, 47, 48, 49, 50, 50});
  for (size_t key = 0; key < kCache; ++key) EXPECT_NEAR(moved[key], slots[key], 1e-4) << key;
  EXPECT_GT(std::abs(unmoved[0] - slots[0]), 1e-2);  // the rotation is not an idle one
}

TEST(StreamingLlmPolicy, NeedsNoScores) {
  const StreamingLlmPolicy policy({});
  EXPECT_TRUE(policy.NeedsAt(Phase::kPrefill, 3).empty());
  EXPECT_TRUE(policy.NeedsAt(Phase::kDecode, 3).empty());
  EXPECT_TRUE(policy.RetainsAt(Phase::kPrefill, 0));
  EXPECT_TRUE(policy.RetainsAt(Phase::kDecode, 31));
}

TEST(StreamingLlmPolicy, KeepsWhatComposePins) {
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  policies.push_back(std::make_unique<StreamingLlmPolicy>(StreamingLlmConfig{.sink = 1, .recent = 2}));
  const auto policy = Compose(std::move(policies), {.first = 3, .last = 4, .spans = {{6, 7}}});
  const Scene scene(20);
  const auto kept =
      policy->Retain(scene.seen, {.rows = 20, .positions = {scene.seen.positions}, .pinned = {}}, *scene.be);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->rows.front().ToRows(), (Rows{0, 1, 2, 6, 16, 17, 18, 19}));
}

TEST(StreamingLlmMethod, Settings) {
  const MethodInfo method = StreamingLlmMethod();
  EXPECT_EQ(method.traits, kEvicts | kMovesPositions);
  EXPECT_EQ(MakeMethod(method, "streamingllm", Llama8B(), 32768).settings,
            "streamingllm:sink=4,recent=1020,min=1024");
  for (const char* spec : {"streamingllm", "streamingllm:sink=0,recent=1,min=0"}) SettingsOf(method, spec);
  EXPECT_THAT(RefusalOf(method, "streamingllm:recent=0"), HasSubstr("recent=0 is not a whole number from 1"));
  EXPECT_THAT(RefusalOf(method, "streamingllm:sink=-1"), HasSubstr("sink=-1 is not a whole number from 0"));
  EXPECT_THAT(RefusalOf(method, "streamingllm:sink=0.5"), HasSubstr("sink=0.5"));

  EXPECT_EQ(MakeMethod(method, "streamingllm", Llama8B(), 1023).reason,
            "1023 prompt tokens are below its break-even of 1024");
  EXPECT_EQ(MakeMethod(method, "streamingllm", Llama8B(), 1023).policy, nullptr);
  // The prompt fits, what comes after it does not.
  EXPECT_NE(MakeMethod(method, "streamingllm", Llama8B(), 1024).policy, nullptr);
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 512);
  EXPECT_NE(MakeMethod(method, "streamingllm", windowed, 4096).policy, nullptr);
}

}  // namespace
}  // namespace coppice
