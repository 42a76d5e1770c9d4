// The oracle itself, against examples worked by hand and against itself: a wrong oracle would make the engine
// wrong in the same way.
#include <gtest/gtest.h>

#include "oracle_cache.h"
#include "oracle_sliminfer.h"
#include "oracle_tokens.h"

namespace coppice::oracle {
namespace {

class OracleItself : public testing::Test {
 protected:
  Result Run(size_t tokens, size_t prompt, std::vector<Method*> methods) const {
    return Pass(llama_, RandomPrompt(static_cast<int64_t>(tokens), 50), prompt, std::move(methods)).Run();
  }
  static void ExpectNear(const Matrix& a, const Matrix& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t i = 0; i < a[t].size(); ++i) ASSERT_NEAR(a[t][i], b[t][i], tolerance) << t << " " << i;
    }
  }

  TinyModel tiny_ = MakeTiny({.seed = 3});
  Llama llama_{tiny_};
};

TEST_F(OracleItself, StepsContinueWhatPrefillComputes) {
  const Result steps = Run(40, 36, {});
  const Result whole = Run(40, 40, {});
  ASSERT_EQ(steps.logits.size(), 5u);
  ExpectNear({steps.logits.back()}, whole.logits, 1e-12);
  EXPECT_EQ(steps.steps[3].depth, std::vector<size_t>(40, 6));
  EXPECT_EQ(steps.steps[3].attended[5], std::vector<Set>{Range(0, 40)});
}

// The worked example of lazyllm_test.cpp, with its sets given.
struct GivenLazyLlm final : LazyLlm {
  GivenLazyLlm() : LazyLlm({2, 4}, {0.5, 0.5}) {}
  Set Select(Pass& pass, size_t s, const Set&) const override {
    if (pass.current < 8) return s == 0 ? Set{0, 3, 5, 7} : Set{3, 7};
    return s == 0 ? Set{2, 3, 6, 7} : Set{3, 6};
  }
};

TEST_F(OracleItself, LazyLlmDepths) {
  for (const bool append : {true, false}) {
    GivenLazyLlm lazy;
    Pass pass(llama_, RandomPrompt(9, 50), 8, {&lazy});
    pass.append = append;
    const Result r = pass.Run();
    EXPECT_EQ(r.depth, (std::vector<size_t>{4, 2, 2, 6, 2, 4, 2, 6}));
    EXPECT_EQ(r.parked, (Set{0, 1, 2, 4, 5, 6}));
    const Step& step = r.steps[0];
    // The example lists the prompt's tokens; the current one has every layer.
    EXPECT_EQ(step.depth, (std::vector<size_t>{4, 2, 4, 6, 2, 4, 6, 6, 6}));
    EXPECT_EQ(step.attended[1], std::vector<Set>{Range(0, 9)});
    EXPECT_EQ(step.attended[3], (std::vector<Set>{{2, 3, 6, 7, 8}}));
    EXPECT_EQ(step.attended[5], (std::vector<Set>{{3, 6, 8}}));
    const std::vector<std::pair<size_t, size_t>> revived = {{2, 2}, {2, 6}, {3, 2}, {3, 6}, {4, 6}, {5, 6}};
    EXPECT_EQ(step.revived, revived);
    EXPECT_EQ(step.parked, (Set{0, 1, 2, 4, 5}));
  }
}

// Nothing is chosen: every method is then dense.
TEST_F(OracleItself, IdentityIsDense) {
  const Result dense = Run(44, 40, {});
  LazyLlm lazy({2, 4}, {1, 1});
  StaticPruning once(4, 1);
  Ftp ftp(1, 1, 4, 4);
  SlimInfer slim({.layers = {2, 4}, .keep = {48, 48}, .block = 8, .unit = 4, .window = 4, .revive = true});
  PyramidInfer pyramid(1, 0.2, 4, 1.2, 8);
  UniPrefill uni({1, 3}, 1, 8, 4, 4);
  Spts spts(1, {2, 4}, {40, 40}, {10, 10}, {});
  H2o h2o(0.8, 0.4);
  SnapKv snap(40, 8, 5, false);
  FastKv fast(2, 40, 40, 8, 5);
  StreamingLlm streaming(4, 40);
  Quest quest(48, 8, 0);
  for (Method* method : std::vector<Method*>{&lazy, &once, &ftp, &slim, &pyramid, &uni, &spts, &h2o, &snap,
                                             &fast, &streaming, &quest}) {
    const Result r = Run(44, 40, {method});
    ExpectNear(r.logits, dense.logits, 0);
    EXPECT_EQ(r.depth, dense.depth);
    EXPECT_TRUE(r.parked.empty());
  }
  for (const auto& heads : h2o.sums[3]) {  // the mass of 44 queries and the 4 query heads of the group
    EXPECT_NEAR(std::accumulate(heads.begin(), heads.end(), 0.0), 44 * 4, 1e-9);
  }
}

// Keys of a first layer see nothing of other tokens, so in a model of one layer StreamingLLM over a text is
// the model over the text without the gap.
TEST_F(OracleItself, StreamingLlmPlacesTokensBySlots) {
  const TinyModel tiny = MakeTiny({.layers = 1, .seed = 3});
  const Llama model(tiny);
  const std::vector<int32_t> text = RandomPrompt(31, 50);
  StreamingLlm streaming(4, 10);
  const Result r = Pass(model, text, 30, {&streaming}).Run();
  EXPECT_EQ(r.steps[0].attended[0][0], Either(Range(0, 4), Range(20, 31)));
  std::vector<int32_t> joined(text.begin(), text.begin() + 4);
  joined.insert(joined.end(), text.begin() + 20, text.end());
  ExpectNear({r.logits[1]}, Pass(model, joined, 15, {}).Run().logits, 1e-12);
}

// Reviving changes what a step attends; without it the set of a segment never changes.
TEST_F(OracleItself, SlimInferRevives) {
  for (const size_t cap : {1u, 2u}) {
    SlimInfer slim({.layers = {2, 4},
                    .keep = {112, 64},
                    .decode_keep = {80, 48},
                    .block = 16,
                    .unit = 8,
                    .window = 4,
                    .revive = true,
                    .revive_cap = cap});
    const Result r = Run(212, 200, {&slim});
    size_t most = 0;
    for (const Step& step : r.steps) {
      size_t in_layer = 0;
      for (const auto& [layer, position] : step.revived) in_layer += layer == 2;
      most = std::max(most, in_layer);
      EXPECT_LE(step.attended[3][0].size(), 80u + 12);
      EXPECT_TRUE(In(step.attended[3][0], 0) && In(step.attended[3][0], 199));
    }
    EXPECT_LE(most, cap * 16);
    EXPECT_GT(most, 0u);
  }
  SlimInfer fixed({.layers = {2, 4}, .keep = {112, 64}, .block = 16, .unit = 8, .window = 4});
  const Result r = Run(212, 200, {&fixed});
  for (const Step& step : r.steps) EXPECT_TRUE(step.revived.empty());
  EXPECT_EQ(Both(r.steps[11].attended[2][0], Range(0, 200)), r.cached[2]);
  EXPECT_EQ(fixed.swaps, 0);
}

}  // namespace
}  // namespace coppice::oracle
