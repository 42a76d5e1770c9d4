#include "kv/aux_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace coppice {
namespace {

class AuxCacheTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kWidth = 5;
  // Values that every cache type represents exactly.
  static std::vector<float> State(int32_t seed) {
    std::vector<float> state(kWidth);
    for (int64_t c = 0; c < kWidth; ++c) state[c] = static_cast<float>((seed * 31 + c * 7) % 255) - 127;
    return state;
  }
  void Park(int32_t position, bool owed, const std::vector<float>& state) {
    cache_.Park(position, owed, TensorView(state.data(), DType::kF32, 1, kWidth), *backend_);
  }
  std::vector<float> Take(int32_t position) {
    std::vector<float> state(kWidth);
    cache_.Take({&position, 1}, MutableTensorView(state.data(), DType::kF32, 1, kWidth), *backend_);
    return state;
  }

  std::unique_ptr<Backend> backend_ = MakeBackend("reference", {});
  AuxCache cache_{GetParam(), kWidth};
};

TEST_P(AuxCacheTest, HoldsOneStatePerPosition) {
  EXPECT_FALSE(cache_.Has(3));
  EXPECT_FALSE(cache_.FfnOwed(3));
  Park(3, true, State(3));
  Park(70, false, State(70));
  EXPECT_TRUE(cache_.Has(3) && cache_.Has(70));
  EXPECT_FALSE(cache_.Has(4));
  EXPECT_TRUE(cache_.FfnOwed(3));
  EXPECT_FALSE(cache_.FfnOwed(70));
  EXPECT_EQ(cache_.tokens(), 2);
  EXPECT_EQ(cache_.bytes(), 2 * BytesOf(GetParam(), kWidth));
  EXPECT_THROW(Park(3, false, State(4)), CheckFailure);
  EXPECT_EQ(Take(3), State(3));
  EXPECT_FALSE(cache_.Has(3));
  EXPECT_FALSE(cache_.FfnOwed(3));
  EXPECT_THROW(Take(3), CheckFailure);
  EXPECT_EQ(cache_.tokens(), 1);
  Park(3, false, State(5));  // parked again, now without an owed FFN
  EXPECT_FALSE(cache_.FfnOwed(3));
  EXPECT_EQ(Take(3), State(5));
  EXPECT_EQ(Take(70), State(70));
  EXPECT_EQ(cache_.bytes(), 0);
}

TEST_P(AuxCacheTest, RandomOperationsAgreeWithAModel) {
  std::mt19937 random(11);
  std::map<int32_t, std::pair<bool, int32_t>> model;
  for (int32_t step = 0; step < 4000; ++step) {
    const int32_t position = static_cast<int32_t>(random() % 300);
    const auto at = model.find(position);
    ASSERT_EQ(cache_.Has(position), at != model.end());
    if (at == model.end()) {
      const bool owed = random() % 2 == 0;
      Park(position, owed, State(step));
      model[position] = {owed, step};
    } else {
      ASSERT_EQ(cache_.FfnOwed(position), at->second.first);
      ASSERT_EQ(Take(position), State(at->second.second));
      model.erase(at);
    }
    ASSERT_EQ(cache_.tokens(), static_cast<int64_t>(model.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AuxCacheTest, testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(Info(type.param).name); });

TEST(AuxCache, RoundsToTheTypeOfTheKeys) {
  const auto backend = MakeBackend("reference", {});
  AuxCache cache(DType::kBF16, 1);
  const float x = 1.0f + 0x1p-12f;
  cache.Park(0, false, TensorView(&x, DType::kF32, 1, 1), *backend);
  float y = 0;
  cache.Take(std::vector<int32_t>{0}, MutableTensorView(&y, DType::kF32, 1, 1), *backend);
  EXPECT_EQ(y, 1.0f);
}

}  // namespace
}  // namespace coppice
