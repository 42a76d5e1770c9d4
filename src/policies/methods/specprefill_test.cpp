#include "policies/methods/specprefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "policies/pattern_test_support.h"
#include "policies/registry.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

TEST(SpecPrefill, PoolsWithZerosBeyondTheEnds) {
  std::vector<float> row = {3, 0, 6, 9, 0};
  PoolAverage(row, 3);
  EXPECT_THAT(row, ElementsAre(1, 3, 5, 5, 3));
  std::vector<float> one = {2, 4};
  PoolAverage(one, 1);
  EXPECT_THAT(one, ElementsAre(2, 4));
  PoolAverage(one, 13);
  EXPECT_THAT(one, ElementsAre(FloatNear(6.0f / 13, 1e-6f), FloatNear(6.0f / 13, 1e-6f)));
}

// (1) to (3) by plain fp64 loops, over several layers and queries. The scene's last key is the query's own
// token; keys from `tokens` on belong to generated tokens and take no part in the softmax.
TEST(SpecPrefill, ImportanceAgreesWithPlainSums) {
  constexpr int64_t kTokens = 150;
  constexpr int kPool = 5;
  LookAhead scores(kTokens, kPool);
  std::vector<double> expected(kTokens, 0.0);
  for (int query = 0; query < 3; ++query) {
    std::vector<double> best(kTokens, 0.0);
    for (uint32_t layer = 0; layer < 2; ++layer) {
      PrefillScene scene(1, kTokens + query, 4, 2, 10 * layer + static_cast<uint32_t>(query) + 1);
      scene.PlantColumn(1, 40 + 20 * query, 30);
      AttentionScene asked = scene.Scene();
      asked.phase = Phase::kDecode;
      EXPECT_TRUE(scores.ChoosesPattern(Phase::kDecode, 0));
      EXPECT_TRUE(scores.Pattern(asked, *scene.be).empty());
      for (int head = 0; head < 4; ++head) {
        std::vector<double> a;
        for (int64_t j = 0; j < kTokens; ++j) a.push_back(scene.Score(head, 0, j));
        PrefillScene::NaiveSoftmax(a);
        for (int64_t i = 0; i < kTokens; ++i) {
          double sum = 0;
          for (int64_t j = std::max<int64_t>(i - 2, 0); j <= std::min(i + 2, kTokens - 1); ++j)
            sum += a[static_cast<size_t>(j)];
          best[static_cast<size_t>(i)] = std::max(best[static_cast<size_t>(i)], sum / kPool);
        }
      }
    }
    scores.EndQuery();
    for (size_t i = 0; i < best.size(); ++i) expected[i] += best[i] / 3;
  }
  const std::vector<float> importance = scores.Importance();
  ASSERT_EQ(importance.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(importance[i], expected[i], 1e-5) << i;
  EXPECT_FALSE(scores.ChoosesPattern(Phase::kPrefill, 0));
}

std::vector<int32_t> Entering(double keep, int chunk, const std::vector<float>& scores) {
  const auto be = MakeBackend("reference", {});
  SpecPrefillPolicy policy({.keep = keep, .look_ahead = 3, .pool = 5, .chunk = chunk},
                           [&](int look_ahead, int pool) {
                             EXPECT_EQ(look_ahead, 3);
                             EXPECT_EQ(pool, 5);
                             return scores;
                           });
  return policy.Input(static_cast<int64_t>(scores.size()), *be).ToRows();
}

// Chunks of three, the last of two; their means are 2, 3, 3, 4.
TEST(SpecPrefill, TheBestChunksAndTheLastTokenEnter) {
  const std::vector<float> scores = {2, 2, 2, 9, 0, 0, 3, 3, 3, 8, 0};
  EXPECT_THAT(Entering(0.25, 3, scores), ElementsAre(9, 10));
  EXPECT_THAT(Entering(0.26, 3, scores), ElementsAre(3, 4, 5, 9, 10));  // of equals the earlier
  EXPECT_THAT(Entering(0.75, 3, scores), ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(Entering(1, 3, scores), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(Entering(0.01, 1, scores), ElementsAre(3, 10));
}

// keep = 1 does not ask the second model.
TEST(SpecPrefill, IdentityIsFree) {
  const auto be = MakeBackend("reference", {});
  SpecPrefillPolicy policy({.keep = 1}, [](int, int) -> std::vector<float> {
    ADD_FAILURE() << "asked";
    return {};
  });
  EXPECT_TRUE(policy.Input(2, *be).IsAll());
}

TEST(SpecPrefill, Registry) {
  const ModelShape shape = Llama8B();
  const std::vector<int32_t> prompt(2000, 1);
  std::string opened;
  std::string reason;
  MethodContext context{.shape = shape, .tokens = 2000, .prompt = prompt};
  const auto error = [&](const std::string& spec) { return ErrorOf([&] { MakePolicy(spec, context, {}); }); };
  EXPECT_THAT(MakePolicy("specprefill:draft=m", context, {}).reason, HasSubstr("no tokenizer"));
  context.open_draft = [&](const std::string& file) -> Draft {
    opened = file;
    if (file == "missing") throw Error("missing: cannot open");
    return {.read = [](int, int) { return std::vector<float>(2000, 1.0f); }, .reason = reason};
  };
  const PruneChoice choice = MakePolicy("specprefill:draft=m.gguf", context, {});
  EXPECT_TRUE(choice.active);
  EXPECT_EQ(opened, "m.gguf");
  EXPECT_EQ(choice.spec, "specprefill:draft=m.gguf,keep=0.1,look_ahead=8,pool=13,chunk=32,min=1024");
  EXPECT_FALSE(choice.policy->Facts().compact_positions);  // positions stay
  EXPECT_THAT(error("specprefill"), HasSubstr("draft= is missing"));
  EXPECT_THAT(error("specprefill:draft=missing"), HasSubstr("missing: cannot open"));
  EXPECT_THAT(error("specprefill:draft=m,keep=0"), HasSubstr("keep"));
  EXPECT_THAT(error("specprefill:draft=m,pool=4"), HasSubstr("pool=4 must be odd"));
  EXPECT_THAT(error("specprefill:draft=m,look_ahead=0"), HasSubstr("look_ahead=0"));
  // 63 chunks: all of them, or all but one that may hold only the last token.
  EXPECT_THAT(MakePolicy("specprefill:draft=m,keep=0.99", context, {}).reason, HasSubstr("always keeps"));
  reason = "the second model is too short";
  EXPECT_EQ(MakePolicy("specprefill:draft=m", context, {}).reason, "specprefill: " + reason);
  context.tokens = 1000;
  EXPECT_THAT(MakePolicy("specprefill:draft=m", context, {}).reason, HasSubstr("1000 prompt tokens"));
  EXPECT_THAT(error("specprefill:draft=missing"), HasSubstr("missing"));  // at any length
  EXPECT_EQ(SpecPrefillMethod().traits, kSelectsInput);
}

}  // namespace
}  // namespace coppice
