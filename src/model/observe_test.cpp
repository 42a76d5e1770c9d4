#include "model/observe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

Tensor Random(int64_t rows, int64_t cols, TestRandom& random) {
  Tensor tensor(DType::kF32, rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (float& x : tensor.mutable_view().Row<float>(r)) x = random.Uniform();
  }
  return tensor;
}

// Attend cuts a long attention by heads, which must not change the result.
TEST(HeadInput, SomeHeadsAtATimeAreAllOfThemToTheBit) {
  constexpr int kHeads = 12;
  constexpr int kKvHeads = 4;
  constexpr int kDim = 32;
  constexpr int64_t kKeys = 700;
  constexpr int64_t kQueries = 70;
  TestRandom random(5);
  const Tensor queries = Random(kQueries, kHeads * kDim, random);
  const Tensor rows = Random(kKeys, kKvHeads * kDim, random);
  std::vector<int32_t> positions(kKeys);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> slopes(kHeads);
  for (int h = 0; h < kHeads; ++h) slopes[static_cast<size_t>(h)] = 0.01f * static_cast<float>(h + 1);
  for (const char* name : {"reference", "cpu"}) {
    const std::unique_ptr<Backend> be = MakeBackendOrSkip(name, {.threads = 2});
    if (be == nullptr) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    Tensor keys(be->cache_dtype(), kKeys, kKvHeads * kDim);
    be->Convert(rows.view(), keys.mutable_view());
    for (const bool alibi : {false, true}) {
      const AttentionInput in{
          {.heads = kHeads,
           .kv_heads = kKvHeads,
           .head_dim = kDim,
           .scale = 0.2f,
           .alibi_slopes = alibi ? std::span<const float>(slopes) : std::span<const float>()},
          queries.view(),
          keys.view(),
          keys.view(),
          std::span<const int32_t>(positions).last(kQueries),
          positions};
      Tensor whole(DType::kF32, kQueries, kHeads * kDim);
      be->Attention(in, whole.mutable_view());
      for (const int together : {1, 2, 3}) {
        Tensor parts = Tensor::Zeros(DType::kF32, kQueries, kHeads * kDim);
        for (int g = 0; g < kKvHeads; g += together) {
          const int count = std::min(together, kKvHeads - g);
          const int64_t columns = int64_t{kHeads} / kKvHeads * kDim;
          be->Attention(HeadInput(in, g, positions, count),
                        parts.mutable_view().Cols(g * columns, count * columns));
        }
        EXPECT_EQ(std::memcmp(parts.view().data, whole.view().data, static_cast<size_t>(whole.bytes())), 0)
            << name << ", " << together << " heads at a time" << (alibi ? ", ALiBi" : "");
      }
    }
  }
}

}  // namespace
}  // namespace coppice
