// Pooling, norms, and the engine's embeddings against a text's states computed otherwise.
#include "engine/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/engine.h"

namespace coppice {
namespace {

std::vector<float> Normalized(int norm, std::vector<float> values) {
  Normalize(norm, values);
  return values;
}

TEST(Embedding, Norms) {
  EXPECT_EQ(Normalized(-1, {3, -4}), (std::vector<float>{3, -4}));
  EXPECT_EQ(Normalized(2, {3, -4}), (std::vector<float>{0.6F, -0.8F}));
  EXPECT_EQ(Normalized(1, {1, -3}), (std::vector<float>{0.25F, -0.75F}));
  EXPECT_EQ(Normalized(0, {2, -4}), (std::vector<float>{16380, -32760}));
  EXPECT_EQ(Normalized(2, {0, 0}), (std::vector<float>{0, 0}));
}

TEST(Embedding, Pools) {
  Tensor states(DType::kF32, 3, 2);
  const float values[3][2] = {{1, 2}, {3, -4}, {8, 5}};
  for (int64_t row = 0; row < 3; ++row) {
    for (size_t i = 0; i < 2; ++i) states.mutable_view().Row<float>(row)[i] = values[row][i];
  }
  EXPECT_EQ(Pool(states.view(), Pooling::kLast), (std::vector<float>{8, 5}));
  EXPECT_EQ(Pool(states.view(), Pooling::kMean), (std::vector<float>{4, 1}));
  EXPECT_EQ(Pool(states.view(), Pooling::kNone), (std::vector<float>{1, 2, 3, -4, 8, 5}));
}

// A causal model's states of a text do not depend on what follows. So the last token's states of all
// beginnings are the states of the whole text.
TEST(Embedding, TheMeanIsThatOfAllBeginnings) {
  const auto engine = Engine::FromShape("tiny:f32", {.exact = true});
  const std::vector<int32_t> tokens = {5, 9, 2, 77, 31};
  std::vector<double> sum(static_cast<size_t>(engine->model().config().shape.hidden));
  for (size_t count = 1; count <= tokens.size(); ++count) {
    const std::vector<float> last = engine->Embed(std::span(tokens).first(count), Pooling::kLast, {});
    ASSERT_EQ(last.size(), sum.size());
    for (size_t i = 0; i < last.size(); ++i) sum[i] += static_cast<double>(last[i]);
  }
  const std::vector<float> mean = engine->Embed(tokens, Pooling::kMean, {});
  ASSERT_EQ(mean.size(), sum.size());
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(mean[i], sum[i] / 5, 1e-4 + 1e-4 * std::abs(sum[i]));
}

TEST(Embedding, RefusesWhatIsNoText) {
  const auto engine = Engine::FromShape("tiny:f32", {.context = 8});
  EXPECT_THROW(engine->Embed({}, Pooling::kMean, {}), Error);
  EXPECT_THROW(engine->Embed(std::vector<int32_t>{1 << 30}, Pooling::kMean, {}), Error);
  EXPECT_THROW(engine->Embed(std::vector<int32_t>(9, 1), Pooling::kMean, {}), Error);
}

}  // namespace
}  // namespace coppice
