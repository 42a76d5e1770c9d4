#include "policies/compose.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "policy_scene.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;

// Answers each question with a list of its own.
class Fixed final : public TokenPolicy {
 public:
  Fixed(Rows before, Rows keep, Rows ffn, Needs needs = {})
      : before_(std::move(before)), keep_(std::move(keep)), ffn_(std::move(ffn)), needs_(std::move(needs)) {}
  Needs NeedsAt(Phase, int) const override { return needs_; }
  TokenSet BeforeLayer(const Observation& seen, Backend&) override {
    return TokenSet::Of(before_, seen.rows());
  }
  TokenSet AfterAttention(const Observation& seen, Backend&) override {
    return TokenSet::Of(keep_, seen.rows());
  }
  TokenSet RunFfn(const Observation& seen, Backend&) override { return TokenSet::Of(ffn_, seen.rows()); }

 private:
  Rows before_, keep_, ffn_;
  Needs needs_;
};

std::unique_ptr<TokenPolicy> Composed(std::vector<Fixed> fixed, const Protection& protection) {
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  for (Fixed& f : fixed) policies.push_back(std::make_unique<Fixed>(std::move(f)));
  return Compose(std::move(policies), protection);
}

TEST(Compose, NoPoliciesAreDense) {
  const auto dense = Composed({}, {.first = 3, .last = 3});
  Scene scene(10);
  EXPECT_TRUE(dense->BeforeLayer(scene.seen, *scene.be).IsAll());
  EXPECT_TRUE(dense->AfterAttention(scene.seen, *scene.be).IsAll());
  EXPECT_TRUE(dense->RunFfn(scene.seen, *scene.be).IsAll());
  EXPECT_TRUE(dense->NeedsAt(Phase::kPrefill, 0).empty());
}

TEST(Compose, SetsOfTheSameQuestionAreIntersected) {
  const auto both =
      Composed({Fixed({1, 2, 3, 9}, {2, 3, 4, 9}, {5, 6, 9}), Fixed({2, 3, 4, 9}, {3, 4, 5}, {0, 6})}, {});
  Scene scene(10);
  EXPECT_EQ(both->BeforeLayer(scene.seen, *scene.be).ToRows(), (Rows{2, 3, 9}));
  EXPECT_EQ(both->AfterAttention(scene.seen, *scene.be).ToRows(), (Rows{3, 4, 9}));  // the last row always
  EXPECT_EQ(both->RunFfn(scene.seen, *scene.be).ToRows(), (Rows{6, 9}));
}

TEST(Compose, TheLastRowAlwaysStays) {
  const auto nothing = Composed({Fixed({}, {}, {})}, {});
  for (const int64_t rows : {1, 2, 10}) {
    Scene scene(rows);
    const Rows last = {static_cast<int32_t>(rows) - 1};
    EXPECT_EQ(nothing->BeforeLayer(scene.seen, *scene.be).ToRows(), last);
    EXPECT_EQ(nothing->AfterAttention(scene.seen, *scene.be).ToRows(), last);
    EXPECT_EQ(nothing->RunFfn(scene.seen, *scene.be).ToRows(), last);
  }
}

TEST(Compose, ProtectedPositionsAreAddedBack) {
  const auto policy = Composed({Fixed({4}, {4}, {4})}, {.first = 2, .last = 3});
  Scene scene(10);
  EXPECT_EQ(policy->AfterAttention(scene.seen, *scene.be).ToRows(), (Rows{0, 1, 4, 7, 8, 9}));
  EXPECT_EQ(policy->RunFfn(scene.seen, *scene.be).ToRows(), (Rows{0, 1, 4, 7, 8, 9}));
  EXPECT_EQ(policy->BeforeLayer(scene.seen, *scene.be).ToRows(), (Rows{0, 1, 4, 7, 8, 9}));
  // Protection is of positions: of these rows only position 1 lies below 2, and 98 and 99 in the last 3 of
  // 100.
  Scene sparse({1, 5, 9, 50, 70, 98, 99}, 100, 3);
  EXPECT_EQ(policy->AfterAttention(sparse.seen, *sparse.be).ToRows(), (Rows{0, 4, 5, 6}));
}

// Where tokens that entered are numbered anew, what is protected is still the same tokens.
TEST(Compose, ProtectionMovesWithPackedPositions) {
  class Packs final : public TokenPolicy {
    TokenSet Input(int64_t tokens, Backend&) override { return TokenSet::Of({0, 5, 6, 9}, tokens); }
    PolicyFacts Facts() const override { return {.compact_positions = true}; }
    TokenSet AfterAttention(const Observation& seen, Backend&) override {
      return TokenSet::None(seen.rows()).UnionLast(1);
    }
  };
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  policies.push_back(std::make_unique<Packs>());
  const auto policy = Compose(std::move(policies), {.first = 1, .last = 1, .spans = {{3, 5}, {6, 7}}});
  Scene scene(10);
  EXPECT_EQ(policy->Input(10, *scene.be).ToRows(), (Rows{0, 3, 4, 5, 6, 9}));
  Scene packed(6);  // 5, the only one that nothing protects, is row 3
  EXPECT_EQ(policy->AfterAttention(packed.seen, *packed.be).ToRows(), (Rows{0, 1, 2, 4, 5}));
}

TEST(Compose, ProtectionBeyondThePromptIsEverything) {
  Scene scene(10);
  EXPECT_TRUE(Composed({Fixed({}, {}, {})}, {.first = 11, .last = 0})->RunFfn(scene.seen, *scene.be).IsAll());
  EXPECT_TRUE(Composed({Fixed({}, {}, {})}, {.first = 0, .last = 11})->RunFfn(scene.seen, *scene.be).IsAll());
  EXPECT_TRUE(Composed({Fixed({}, {}, {})}, {.first = 5, .last = 5})->RunFfn(scene.seen, *scene.be).IsAll());
  const Protection most{.first = int64_t{1} << 40, .last = int64_t{1} << 40};
  EXPECT_TRUE(Composed({Fixed({}, {}, {})}, most)->RunFfn(scene.seen, *scene.be).IsAll());
}

TEST(Compose, NeedsAreMergedWithoutRepeats) {
  const Needs a{.masses = {{.queries = 50}, {.queries = 1}}, .unit_scores = {{4, 8}}};
  const Needs b{.masses = {{.queries = 1}, {.queries = 32}}, .unit_scores = {{4, 8}, {4, 16}}};
  const Needs all = Composed({Fixed({}, {}, {}, a), Fixed({}, {}, {}, b)}, {})->NeedsAt(Phase::kPrefill, 5);
  EXPECT_EQ(all.masses, (std::vector<Needs::Mass>{{.queries = 50}, {.queries = 1}, {.queries = 32}}));
  EXPECT_EQ(all.unit_scores, (std::vector<Needs::Units>{{4, 8}, {4, 16}}));
}

// A policy that answers about another stream is a mistake of its author.
TEST(Compose, AnAnswerAboutAnotherStreamIsRefused) {
  class Wrong final : public TokenPolicy {
    TokenSet RunFfn(const Observation& seen, Backend&) override { return TokenSet::All(seen.rows() + 1); }
  };
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  policies.push_back(std::make_unique<Wrong>());
  const auto policy = Compose(std::move(policies), {});
  Scene scene(10);
  EXPECT_THROW(policy->RunFfn(scene.seen, *scene.be), CheckFailure);
}

// ---- What a policy sees when rows leave between two of its questions.

TEST(Observation, MassFollowsTheRowsAndUnitScoresDoNot) {
  Scene scene(5);
  scene.Mass(50, {1, 2, 3, 4, 5}).Mass(1, {10, 20, 30, 40, 50}).Units({4, 2}, {7, 8, 9});
  EXPECT_THROW(scene.seen.UnitScores({4, 8}), CheckFailure);
  scene.seen.KeepRows(TokenSet::All(5));
  EXPECT_EQ(scene.seen.UnitScores({4, 2}).cols, 3);
  scene.seen.KeepRows(TokenSet::Of({0, 3, 4}, 5));
  const auto row = [](const TensorView& t) {
    return std::vector<float>(t.Row<float>(0).begin(), t.Row<float>(0).end());
  };
  EXPECT_EQ(row(scene.seen.AttentionMass({.queries = 50})), (std::vector<float>{1, 4, 5}));
  EXPECT_EQ(row(scene.seen.AttentionMass({.queries = 1})), (std::vector<float>{10, 40, 50}));
  EXPECT_THROW(scene.seen.AttentionMass({.queries = 2}), CheckFailure);
  EXPECT_THROW(scene.seen.UnitScores({4, 2}), CheckFailure);
  scene.seen.ClearScores();
  EXPECT_THROW(scene.seen.AttentionMass({.queries = 50}), CheckFailure);
}

}  // namespace
}  // namespace coppice
