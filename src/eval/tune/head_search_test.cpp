#include "eval/tune/head_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine.h"
#include "eval/tune/one_layer_model.h"
#include "policies/pattern_test_support.h"
#include "policies/registry.h"
#include "test_files.h"

namespace coppice::head_search_test {
namespace {

using testing::HasSubstr;

// A head of its own, whose value of key j is code j.
struct OneHeadScene {
  explicit OneHeadScene(int64_t rows)
      : scene(rows, rows, 1, 1), values(DType::kF32, rows, PrefillScene::kDim) {
    Noise noise(9);
    for (int64_t j = 0; j < rows; ++j) {
      const std::vector<float> row = noise.Row(PrefillScene::kDim);
      std::copy(row.begin(), row.end(), values.mutable_view().Row<float>(j).begin());
    }
  }
  std::vector<HeadCandidate> Candidates(int64_t budget) const {
    AttentionInput in = scene.Input();
    in.values = values.view();
    return CandidatesOf(in, budget, *scene.be);
  }
  HeadCandidate Best(int64_t budget) const {
    const std::vector<HeadCandidate> all = Candidates(budget);
    return *std::min_element(all.begin(), all.end(), [](const HeadCandidate& a, const HeadCandidate& b) {
      return a.error < b.error;
    });
  }
  // The least of a kind of pattern.
  double Error(int64_t budget, PatternKind kind) const {
    double least = std::numeric_limits<double>::infinity();
    for (const HeadCandidate& c : Candidates(budget)) {
      if (c.pattern.kind == kind) least = std::min(least, c.error);
    }
    return least;
  }
  // Of attention over the keys that `reads` holds true for, relative to all, in fp64.
  template <typename Reads>
  double ErrorOfReading(int64_t rows, const Reads& reads) const {
    double error = 0;
    double size = 0;
    for (int64_t i = 0; i < rows; ++i) {
      std::vector<double> a = scene.Weights(0, i);
      std::vector<double> some = a;
      double sum = 0;
      for (size_t j = 0; j < a.size(); ++j) sum += some[j] = reads(i, static_cast<int64_t>(j)) ? a[j] : 0;
      for (int64_t c = 0; c < PrefillScene::kDim; ++c) {
        double all_out = 0;
        double some_out = 0;
        for (size_t j = 0; j < a.size(); ++j) {
          const double v = values.view().Row<float>(static_cast<int64_t>(j))[static_cast<size_t>(c)];
          all_out += a[j] * v;
          some_out += some[j] / sum * v;
        }
        error += (all_out - some_out) * (all_out - some_out);
        size += all_out * all_out;
      }
    }
    return error / size;
  }

  PrefillScene scene;
  Tensor values;
};

TEST(HeadSearch, CandidatesCostAtMostTheAShape) {
  OneHeadScene one(1500);
  one.scene.PlantColumn(0, 700, 10);
  const std::vector<HeadCandidate> all = one.Candidates(500);
  ASSERT_GE(all.size(), 4u);
  EXPECT_EQ(all.front().pattern, (HeadPattern{PatternKind::kAShape, 100, 400}));
  for (const HeadCandidate& c : all) {
    EXPECT_LE(c.cost, all.front().cost);
    // The largest of its kind: a block more would cost too much.
    if (c.pattern.kind == PatternKind::kBlockSparse) {
      EXPECT_GT(c.cost, 0.8 * all.front().cost);
    }
  }
  EXPECT_TRUE(one.Candidates(1500).empty());
}

TEST(HeadSearch, TheErrorIsThatOfPlainLoops) {
  const OneHeadScene one(700);
  const HeadCandidate a_shape = one.Candidates(200).front();
  ASSERT_EQ(a_shape.pattern, (HeadPattern{PatternKind::kAShape, 40, 160}));
  // 40 keys are in the first block, 160 keys reach into the third block from the own one.
  const int64_t rows = (700 - 128) / 64 * 64;
  const double expected =
      one.ErrorOfReading(rows, [](int64_t i, int64_t j) { return j / 64 == 0 || j / 64 > i / 64 - 3; });
  EXPECT_NEAR(a_shape.error, expected, 1e-4 * expected);
  EXPECT_GT(expected, 0);
}

// What a kind of pattern can read, its candidate reads.
TEST(HeadSearch, PlantedPatternsAreFound) {
  // Columns in every block: blocks cannot hold them all.
  OneHeadScene columns(1500);
  for (int64_t j = 7; j < 1500; j += 64) columns.scene.PlantColumn(0, j, 40);
  EXPECT_EQ(columns.Best(500).pattern.kind, PatternKind::kVerticalSlash);
  EXPECT_GT(columns.Error(500, PatternKind::kBlockSparse), 5 * columns.Best(500).error);
  // A diagonal that is too far for the A-shape, and one that is near.
  OneHeadScene far(1500);
  far.scene.PlantDiagonal(0, 640, 60);
  EXPECT_LT(far.Error(500, PatternKind::kVerticalSlash), 1e-3);
  EXPECT_GT(far.Error(500, PatternKind::kAShape), 0.1);
  OneHeadScene near(1500);
  near.scene.PlantDiagonal(0, 200, 60);
  EXPECT_LT(near.Error(500, PatternKind::kVerticalSlash), 1e-3);
  EXPECT_LT(near.Error(500, PatternKind::kAShape), 1e-3);
}

TEST(HeadSearch, GivesEveryHeadOfAModelAPatternThatTheMethodReads) {
  const std::string model = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-12-q8_0.gguf";
  const std::unique_ptr<Engine> engine = Engine::Load(model, {.threads = 1});
  const ModelShape& shape = engine->model().config().shape;
  std::vector<int32_t> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(100 + i * i % 300);
  double last = 0;
  const HeadSearchResult found =
      SearchHeadPatterns(*engine, tokens, {.budget = 200, .progress = [&](double share) {
                                             EXPECT_GT(share, last);
                                             last = share;
                                           }});
  EXPECT_EQ(last, 1);
  EXPECT_EQ(found.patterns.tokens, 600);
  ASSERT_EQ(static_cast<int>(found.patterns.heads.size()), shape.layer_count());
  for (const std::vector<HeadPattern>& layer : found.patterns.heads)
    EXPECT_EQ(static_cast<int>(layer.size()), shape.layer(0).heads);
  for (const double error : found.error_of) EXPECT_LE(found.error, error);
  EXPECT_EQ(found.patterns.heads.back(), found.patterns.heads[found.patterns.heads.size() - 2]);
  EXPECT_EQ(ParseHeadPatterns(TextOf(found.patterns), "x.json", shape).heads, found.patterns.heads);
  EXPECT_THAT(ErrorOf([&] { SearchHeadPatterns(*engine, tokens, {.budget = 600}); }),
              HasSubstr("covers the reference prompt of 600"));
  EXPECT_THAT(ErrorOf([&] { SearchHeadPatterns(*engine, {}, {.budget = 600}); }), HasSubstr("no tokens"));
}

// A prompt longer than the context is cut behind its first token.
TEST(HeadSearch, TheFirstTokenStays) {
  const std::unique_ptr<Engine> engine =
      Engine::FromShape("tiny:f32", {.threads = 1, .exact = true, .context = 700});
  std::vector<int32_t> whole(800);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int32_t>(1 + i * i % 60);
  std::vector<int32_t> cut(whole.end() - 699, whole.end());
  cut.insert(cut.begin(), whole.front());
  const auto search = [&](const std::vector<int32_t>& tokens) {
    return SearchHeadPatterns(*engine, tokens, {.budget = 150});
  };
  const HeadSearchResult of_whole = search(whole);
  EXPECT_EQ(of_whole.patterns.tokens, 700);
  EXPECT_GT(of_whole.error, 0);
  EXPECT_EQ(of_whole.error, search(cut).error);
  EXPECT_NE(of_whole.error, search({whole.end() - 700, whole.end()}).error);
}

TEST(HeadSearch, AModelOfOneLayerHasNothingToSearch) {
  const TempFolder folder;
  WriteOneLayerModel(folder.Path("model.gguf"));
  const std::unique_ptr<Engine> engine = Engine::Load(folder.Path("model.gguf"), {.threads = 1});
  EXPECT_THAT(ErrorOf([&] { SearchHeadPatterns(*engine, std::vector<int32_t>(300, 1), {.budget = 100}); }),
              HasSubstr("one layer"));
}

}  // namespace
}  // namespace coppice::head_search_test
