// The operations that only mixtures of experts need.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class MixtureConformance : public ConformanceTest {};

TEST_P(MixtureConformance, AddScaledRows) {
  if (be().memory() != nullptr) GTEST_SKIP() << "CheckNeeds refuses mixtures";
  const Tensor x = Random(4, 37, 1);
  Tensor y = Random(9, 37, 2);
  Tensor expected = y.Clone();
  const std::vector<int32_t> rows = {1, 2, 5, 8};
  const std::vector<float> scales = {0.3f, -1.7f, 0, 1};
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 37; ++c) {
      const volatile float product = scales[static_cast<size_t>(i)] * x.view().Row<float>(i)[c];
      expected.mutable_view().Row<float>(rows[i])[c] += product;
    }
  }
  be().AddScaledRows(x.view(), rows, scales, y.mutable_view());
  EXPECT_TRUE(SameBits(y.view(), expected.view()));
  EXPECT_THROW(be().AddScaledRows(x.view(), rows, std::vector<float>{1}, y.mutable_view()), CheckFailure);
}

// However many rows a call has, a row's experts and weights are those of RouteRows.
TEST_P(MixtureConformance, RouteIsByRow) {
  if (be().memory() != nullptr) GTEST_SKIP() << "CheckNeeds refuses mixtures";
  const Tensor logits = Random(700, 24, 3, 4);
  const RouterRule rule{.used = 5};
  std::vector<int32_t> experts(3500);
  std::vector<float> weights(3500);
  be().Route(logits.view(), {}, rule, {experts, weights});
  for (int64_t i = 0; i < 700; ++i) {
    std::vector<int32_t> own(5);
    std::vector<float> own_weights(5);
    RouteRows(logits.view().Rows(i, 1), {}, rule, {own, own_weights});
    for (size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(experts[static_cast<size_t>(i) * 5 + k], own[k]);
      EXPECT_EQ(weights[static_cast<size_t>(i) * 5 + k], own_weights[k]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MixtureConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
