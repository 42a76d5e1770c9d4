// Stored blocks of 4 bits in the panels of codes: which keep their codes, bit for bit against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/panel_products_test_support.h"

namespace coppice {
namespace {

using namespace testing_panels;

class StoredBlocks : public IntProductsTest {
 protected:
  // Calls fill(block) for every block of w.
  template <typename F>
  static void FillBlocks(Tensor& w, F fill) {
    const int64_t bytes = BytesOf(w.dtype(), Info(w.dtype()).block_elements);
    for (int64_t o = 0; o < w.rows(); ++o) {
      for (int64_t at = 0; at < BytesOf(w.dtype(), w.cols()); at += bytes)
        fill(w.mutable_view().RowBytes(o) + at);
    }
  }
  void ExpectStated(const Tensor& x, const Tensor& w) {
    EXPECT_TRUE(SameBits(Product(x.view(), w.view()), GetParam().Expected(x.view(), w.view())));
  }
  // A value that is not finite, in two bytes at `offset` of a row of weights, shows in this row and no other.
  void ExpectVisible(const Tensor& x, Tensor& w, int64_t offset) {
    constexpr int64_t kRow = 17;
    const Tensor before = Product(x.view(), w.view());
    std::byte* at = w.mutable_view().RowBytes(kRow) + offset;
    F16 kept;
    std::memcpy(&kept, at, sizeof kept);
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const F16 half = ToF16(bad);
      std::memcpy(at, &half, sizeof half);
      const Tensor y = Product(x.view(), w.view());
      for (int64_t i = 0; i < y.rows(); ++i) {
        for (int64_t o = 0; o < y.cols(); ++o) {
          const float v = y.view().Row<float>(i)[static_cast<size_t>(o)];
          if (o == kRow) {
            EXPECT_TRUE(std::isnan(v));
          } else {
            EXPECT_EQ(v, before.view().Row<float>(i)[static_cast<size_t>(o)]);
          }
        }
      }
    }
    std::memcpy(at, &kept, sizeof kept);
  }
};

// Blocks of Q4_0 whose rotated codes do and do not fit into a byte, by one: all codes alike, alternating, and
// at random with few or no others; steps of either sign, tiny, and zero.
TEST_P(StoredBlocks, BlocksOfQ4_0AtTheEdgesAreTheStatedArithmetic) {
  constexpr int64_t kInputs = 288;  // not a multiple of 64
  const Tensor x = Random(9, kInputs, 12);
  Tensor w(DType::kQ4_0, 70, kInputs);
  std::mt19937 random(13);
  const float steps[] = {0.01f, -0.01f, 6e-8f, -6e-8f, 0.0f, 3.0f, 60000.0f};
  FillBlocks(w, [&](std::byte* block) {
    const F16 step = ToF16(steps[random() % std::size(steps)]);
    std::memcpy(block, &step, sizeof step);
    const unsigned low = random() % 16;
    const unsigned high = random() % 16;
    const unsigned others = random() % 20;  // of 256 bytes that differ
    for (int i = 0; i < 16; ++i) {
      const unsigned byte = random() % 256 < others * others ? random() % 256 : low | high << 4;
      block[2 + i] = static_cast<std::byte>(byte);
    }
  });
  ExpectStated(x, w);
  ExpectVisible(x, w, 36);  // a step
}

// The same with shifts: sums of blocks that do and do not fit into a byte, by less than one.
TEST_P(StoredBlocks, BlocksOfQ4_1AtTheEdgesAreTheStatedArithmetic) {
  constexpr int64_t kInputs = 288;
  const Tensor x = Random(9, kInputs, 14);
  Tensor w(DType::kQ4_1, 70, kInputs);
  std::mt19937 random(15);
  const float steps[] = {0.01f, -0.01f, 6e-8f, 0.0f, 3.0f};
  const float sums[] = {0, 10.5f, 126.4f, 127, 127.3f, 127.5f, 128, -127, -127.45f, -128.2f, 300, -5000};
  FillBlocks(w, [&](std::byte* block) {
    const F16 step = ToF16(steps[random() % std::size(steps)]);
    const unsigned alike = random() % 256;
    const unsigned others = random() % 20;  // of 256 bytes that differ
    unsigned sum = 0;
    for (int i = 0; i < 16; ++i) {
      const unsigned byte = random() % 256 < others * others ? random() % 256 : alike;
      block[4 + i] = static_cast<std::byte>(byte);
      sum += byte % 16 + byte / 16;
    }
    const float target = sums[random() % std::size(sums)];
    const F16 shift = ToF16(ToFloat(step) * (target - static_cast<float>(sum)) / 32);
    std::memcpy(block, &step, sizeof step);
    std::memcpy(block + 2, &shift, sizeof shift);
  });
  ExpectStated(x, w);
  ExpectVisible(x, w, 40);  // a step
  ExpectVisible(x, w, 42);  // and its shift
}

TEST_P(StoredBlocks, BlocksOfQ4_KOfAnyScalesAreTheStatedArithmetic) {
  constexpr int64_t kInputs = 768;
  const Tensor x = Random(9, kInputs, 16);
  Tensor w(DType::kQ4_K, 70, kInputs);
  std::mt19937 random(17);
  const float steps[] = {0.001f, -0.001f, 6e-8f, 0.0f, 2.0f};
  const float minima[] = {0, 0.1f, 1, 8, -1};  // of the steps
  FillBlocks(w, [&](std::byte* block) {
    const F16 step = ToF16(steps[random() % std::size(steps)]);
    const F16 minimum = ToF16(ToFloat(step) * minima[random() % std::size(minima)]);
    std::memcpy(block, &step, sizeof step);
    std::memcpy(block + 2, &minimum, sizeof minimum);
    for (int i = 4; i < 144; ++i) block[i] = static_cast<std::byte>(random() % 256);
  });
  ExpectStated(x, w);
}

// The largest codes of x, of any signs, by the least and the largest codes: no sum of a few products leaves
// 16 bits.
TEST_P(StoredBlocks, TheLargestProductsAreTheStatedArithmetic) {
  std::mt19937 random(19);
  for (DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
    Tensor x(DType::kF32, 64, 512);
    for (int64_t i = 0; i < x.rows(); ++i) {
      const auto row = x.mutable_view().Row<float>(i);
      for (float& v : row) v = i == 0 || random() % 2 == 0 ? 1.0f : -1.0f;
      Rotate(row, 4);  // its own inverse, but for a factor: the codes are the signs
    }
    Tensor w = RandomWeight(type, 70, 512, 18);
    const bool super = type == DType::kQ4_K;
    FillBlocks(w, [&](std::byte* block) {
      for (int i = super ? 16 : type == DType::kQ4_1 ? 4 : 2; i < BytesOf(type, super ? 256 : 32); ++i)
        block[i] = static_cast<std::byte>((random() % 2 == 0 ? 15 : 0) | (random() % 2 == 0 ? 240 : 0));
    });
    ExpectStated(x, w);
  }
}

// Only x is rounded: blocks of 4 bits keep their codes. The rounding of x alone is half a percent.
TEST_P(StoredBlocks, StoredCodesOfFourBitsLoseNothing) {
  if (GetParam().group() != 32) GTEST_SKIP() << "groups are not blocks";
  for (DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
    // Rows of x that rotate to integers of at most 127, which int8 codes hold exactly.
    Tensor x = Tensor::Zeros(DType::kF32, 9, 512);
    for (int64_t i = 0; i < 9; ++i) {
      for (size_t k = 0; k < 512; k += 32)
        x.mutable_view().Row<float>(i)[k + static_cast<size_t>(i) * 3] = 127;
    }
    const Tensor w = RandomWeight(type, 40, 512, 11);
    const Tensor y = Product(x.view(), w.view());
    std::vector<float> row(512);
    double error = 0;
    double size = 0;
    for (int64_t o = 0; o < 40; ++o) {
      DequantizeRow(type, w.view().RowBytes(o), row);
      for (int64_t i = 0; i < 9; ++i) {
        double sum = 0;
        for (size_t k = 0; k < 512; ++k) sum += double{x.view().Row<float>(i)[k]} * row[k];
        error += std::pow(sum - y.view().Row<float>(i)[static_cast<size_t>(o)], 2);
        size += sum * sum;
      }
    }
    // In Q4_1 and Q4_K panels of 8 bits round one value of 32, their minimum's.
    const bool shifts_apart = GetParam().isa == Isa::kAvx2;
    EXPECT_LT(std::sqrt(error / size), type == DType::kQ4_0 || shifts_apart ? 1e-6 : 0.02) << Info(type).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, StoredBlocks, ::testing::ValuesIn(kPanelKernels), KernelsName);

}  // namespace
}  // namespace coppice
