#include "model/workspace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <utility>

#include "failing_memory.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

PackedMatrix OfFloats(int64_t count) {
  PackedMatrix packed;
  packed.storage = Tensor::Zeros(DType::kF32, 1, count);
  return packed;
}

TEST(KeptWeights, KeepsWhatFits) {
  const std::byte values[3] = {};
  const PartsKey weights[] = {{&values[0]}, {&values[1]}, {&values[2]}};
  StepWeights kept;
  kept.SetRoom(1000);
  PackedMatrix first = OfFloats(150);
  EXPECT_TRUE(kept.MayFit(weights[0]));
  const PackedMatrix* at = kept.Keep(weights[0], first);
  EXPECT_NE(at, &first);
  EXPECT_EQ(kept.Find(weights[0]), at);
  EXPECT_EQ(kept.bytes(), 600);

  PackedMatrix second = OfFloats(150);
  EXPECT_TRUE(kept.MayFit(weights[1]));  // its size is not known yet
  EXPECT_EQ(kept.Keep(weights[1], second), &second);
  EXPECT_EQ(kept.Find(weights[1]), nullptr);
  EXPECT_FALSE(kept.MayFit(weights[1]));
  EXPECT_EQ(kept.bytes(), 600);

  kept.SetRoom(1200);
  EXPECT_TRUE(kept.MayFit(weights[1]));
  EXPECT_NE(kept.Keep(weights[1], second), &second);
  EXPECT_EQ(kept.bytes(), 1200);
  EXPECT_FALSE(kept.MayFit(weights[2]));

  kept.SetRoom(1199);  // one of the two has to go, and fits no longer
  EXPECT_EQ(kept.bytes(), 600);
  EXPECT_NE(kept.Find(weights[0]) == nullptr, kept.Find(weights[1]) == nullptr);
  kept.SetRoom(0);
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_EQ(kept.Find(weights[0]), nullptr);
}

TEST(KeptWeights, PartsWithTheSameFirstAreNotConfused) {
  const std::byte values[2] = {};
  KeptWeights kept(1000);
  PackedMatrix both = OfFloats(100);
  PackedMatrix alone = OfFloats(50);
  const PackedMatrix* at = kept.Keep({&values[0], &values[1]}, both);
  EXPECT_EQ(kept.Find({&values[0]}), nullptr);
  EXPECT_NE(kept.Keep({&values[0]}, alone), at);
  EXPECT_EQ(kept.Find({&values[0], &values[1]}), at);
  EXPECT_EQ(kept.bytes(), 600);
}

// Each allocation of a call fails once. Where that is while a weight is packed for the store, the call packs
// for itself, and the store takes no more.
TEST(KeptWeights, AreGivenUpWhereMemoryRunsOut) {
  const auto be = MakeBackend("reference", {});
  Tensor stored = Tensor::Zeros(DType::kF32, 8, 4);
  Tensor x = Tensor::Zeros(DType::kF32, 3, 4);
  stored.mutable_view().Row<float>(7)[1] = 2.0f;
  x.mutable_view().Row<float>(2)[1] = 3.0f;
  const Linear weight{.weight = stored.view(), .bias = {}};
  const std::vector<Tile> tiles = TilesOf(3, 0, 64);
  int given_up = 0;
  for (int spared = 0; spared < 20; ++spared) {
    KeptWeights lasting(1 << 20);
    WeightStores kept;
    kept.lasting = &lasting;
    Projection projection;
    spared_allocations = spared;
    failing_allocations = 1;
    try {
      projection.Prepare(weight, tiles, kept, *be);
    } catch (const std::bad_alloc&) {
      failing_allocations = 0;
      EXPECT_EQ(lasting.bytes(), 0);
      continue;
    }
    const bool failed = failing_allocations == 0;
    spared_allocations = failing_allocations = 0;
    Tensor y(DType::kF32, 3, 8);
    projection(x.view(), ProductKind::kPrefill, ProductEnd::kStore, y.mutable_view(), *be);
    EXPECT_EQ(y.view().Row<float>(2)[7], 6.0f);
    if (!failed) {
      EXPECT_GT(lasting.bytes(), 0);
      continue;
    }
    ++given_up;
    EXPECT_EQ(lasting.bytes(), 0);
    EXPECT_FALSE(lasting.MayFit({stored.view().data}));
  }
  EXPECT_GT(given_up, 0);
}

// The tokens of a decode step that come back get the same bits from a weight that is kept, from one that is
// packed for this product alone, and from the prefill. 3 rows are few, 100 are not.
TEST(KeptWeights, ChangeNoBit) {
  const auto be = MakeNativeBackendOrSkip("cpu", {.threads = 2});
  if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  TestRandom random(5);
  const auto matrix = [&](int64_t rows, int64_t cols) {
    Tensor t(DType::kF32, rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (float& x : t.mutable_view().Row<float>(r)) x = random.Uniform();
    }
    return t;
  };
  const Tensor wide = matrix(96, 128);
  const Tensor x = matrix(100, 128);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    Tensor stored(type, 96, 128);
    be->Convert(wide.view(), stored.mutable_view());
    const Linear weight{.weight = stored.view(), .bias = {}};
    for (const int64_t rows : {3, 100}) {
      const auto product = [&](WeightStores& kept, int64_t decode_rows) {
        Projection projection;
        const std::vector<Tile> tiles = TilesOf(rows + decode_rows, decode_rows, 64);
        projection.Prepare(weight, tiles, kept, *be);
        Tensor y(DType::kF32, rows, 96);
        for (const Tile& tile : tiles) {
          if (tile.kind != ProductKind::kPrefill) continue;
          projection(x.view().Rows(tile.begin, tile.count), tile.kind, ProductEnd::kStore,
                     y.mutable_view().Rows(tile.begin, tile.count), *be);
        }
        return y;
      };
      const auto same = [](const Tensor& a, const Tensor& b) {
        return std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.bytes())) == 0;
      };
      WeightStores none;
      WeightStores kept;
      kept.steps.SetRoom(1 << 20);
      const Tensor prefill = product(none, 0);
      EXPECT_TRUE(same(product(none, 1), prefill));
      EXPECT_TRUE(same(product(kept, 0), prefill));
      EXPECT_EQ(kept.steps.bytes(), 0);  // a prefill leaves nothing for steps
      EXPECT_TRUE(same(product(kept, 1), prefill));
      const PartsKey key{stored.view().data};
      const PackedMatrix* at = kept.steps.Find(key);
      EXPECT_NE(at, nullptr);
      EXPECT_TRUE(same(product(kept, 1), prefill));
      EXPECT_EQ(kept.steps.Find(key), at);

      KeptWeights lasting(1 << 20);
      WeightStores prompts;
      prompts.lasting = &lasting;
      prompts.steps.SetRoom(1 << 20);
      for (const int64_t decode_rows : {0, 1, 0}) {
        EXPECT_TRUE(same(product(prompts, decode_rows), prefill));
        EXPECT_EQ(lasting.bytes(), kept.steps.bytes());
        EXPECT_EQ(prompts.steps.bytes(), 0);  // steps take what prompts have
      }
      KeptWeights small(lasting.bytes() - 1);
      prompts.lasting = &small;
      for (const int64_t decode_rows : {0, 0, 1}) EXPECT_TRUE(same(product(prompts, decode_rows), prefill));
      EXPECT_EQ(small.bytes(), 0);
      EXPECT_EQ(prompts.steps.bytes(), lasting.bytes());
    }
  }
}

}  // namespace
}  // namespace coppice
