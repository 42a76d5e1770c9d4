// Integer products of several rows of x and of weights: the same bits in any company, on every instruction
// set, and those of the order that int_dot_blocks.inl states; and no load behind the weights.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "formats/quant_blocks.h"
#include "kernels/cpu/int_dot_test_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;
using namespace testing_int_dots;

// y [rows of x][rows of w]
std::vector<float> Together(const IntDotKernels& kernels, const TensorView& w, const TensorView& x,
                            const float* bias) {
  const auto type = static_cast<size_t>(w.dtype);
  std::vector<DotGroup> groups(static_cast<size_t>(x.rows * cpu::DotGroups(x.cols)));
  for (int64_t i = 0; i < x.rows; ++i) {
    kernels.quantize(x.Row<float>(i).data(), x.cols, kernels.layout[type], groups.data() + i, x.rows);
  }
  std::vector<float> y(static_cast<size_t>(x.rows * w.rows), NAN);
  kernels.dot[type]({w.data, w.stride, w.rows, 16384, groups.data(), x.rows, w.cols, bias, y.data(), w.rows});
  return y;
}

// Row after row.
std::vector<float> OneByOne(const IntDotKernels& kernels, const TensorView& w, const TensorView& x,
                            const float* bias) {
  std::vector<float> all;
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::vector<float> y = Dots(kernels, w, x.Row<float>(i), bias);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

// Rows of x that share unpacked weights, in one and in several tiles; weights that fill strips or do not;
// with and without a shorter last group.
TEST(IntDotRows, ARowIsTheSameBesideOthers) {
  const Tensor bias = Random(1, 50, 5);
  const float* bias_row = bias.view().Row<float>(0).data();
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kQuantised) {
      for (int64_t count : {32, 224, 256, 800, 1536}) {
        const bool few = IsEmulated(*kernels);
        if (count % Info(type).block_elements != 0 || (few && count > 256)) continue;
        const Tensor w = RandomWeight(type, 50, count, 3);
        const Tensor x = Random(35, count, 4);
        for (int64_t outputs : {1, 5, 15, 16, 17, 33, 50}) {
          if (few && outputs > 17) continue;
          const TensorView some = w.view().Rows(50 - outputs, outputs);
          const float* b = outputs % 2 == 0 ? nullptr : bias_row;
          const std::vector<float> alone = OneByOne(*kernels, some, x.view(), b);
          for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 33, 35}) {
            if (few && rows % 4 > 1) continue;
            const std::vector<float> y = Together(*kernels, some, x.view().Rows(0, rows), b);
            ASSERT_TRUE(std::equal(y.begin(), y.end(), alone.begin()))
                << Info(type).name << " [" << outputs << ", " << count << "] rows " << rows;
          }
        }
      }
    }
  }
}

// The largest codes and scales: 16-bit sums of pairs must not saturate in any kernel.
TEST(IntDotRows, ExtremeCodesAreTheSameBesideOthers) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kQuantised) {
      for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
        Tensor w = RandomBlocks(type, 16, 512, 8);
        for (int64_t i = 0; i < w.bytes(); ++i) {
          const int64_t at = i % Info(type).block_bytes;
          const bool late = type == DType::kQ2_K || type == DType::kQ3_K || type == DType::kQ6_K;
          const bool factor = late ? at >= Info(type).block_bytes - 4 : at < 4;
          if (!factor) w.mutable_view().data[i] = static_cast<std::byte>(byte);
        }
        Tensor x = Random(16, 512, 7, 1e-3f);
        for (int64_t i = 0; i < 16; ++i) {
          for (size_t k = 0; k < 512; ++k) x.mutable_view().Row<float>(i)[k] += i % 2 == 0 ? 1.0f : -1.0f;
        }
        EXPECT_EQ(Together(*kernels, w.view(), x.view(), nullptr),
                  OneByOne(*kernels, w.view(), x.view(), nullptr))
            << Info(type).name << " " << byte;
      }
    }
  }
}

TEST(IntDotRows, WritesNothingBesideTheResult) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kBlockTypes) {
      const auto index = static_cast<size_t>(type);
      const Tensor w = RandomWeight(type, 19, 288, 3);
      const Tensor x = Random(3, 288, 4);
      const std::vector<float> expected = Together(*kernels, w.view(), x.view(), nullptr);
      std::vector<DotGroup> groups(3 * 2);
      for (int64_t i = 0; i < 3; ++i) {
        kernels->quantize(x.view().Row<float>(i).data(), 288, kernels->layout[index], groups.data() + i, 3);
      }
      std::vector<float> y(3 * 40, 7.0f);
      kernels->dot[index]({w.view().data, w.view().stride, 19, 0, groups.data(), 3, 288, nullptr, &y[2], 40});
      for (size_t at = 0; at < y.size(); ++at) {
        const bool inside = at % 40 >= 2 && at % 40 < 21;
        ASSERT_EQ(y[at], inside ? expected[at / 40 * 19 + at % 40 - 2] : 7.0f) << at;
      }
    }
  }
}

TEST(IntDotRows, EveryInstructionSetGivesTheSameBits) {
  const std::vector<const IntDotKernels*> tables = Tables();
  if (tables.size() < 2) GTEST_SKIP() << "this CPU has none of them";
  for (size_t i = 1; i < tables.size(); ++i) {
    for (DType type : kQuantised) {
      for (int64_t count : {32, 224, 288, 1280, 2048}) {
        if (count % Info(type).block_elements != 0) continue;
        const Tensor x = Random(5, count, 9);
        const Tensor w = RandomBlocks(type, 20, count, 10);
        EXPECT_EQ(Together(*tables[0], w.view(), x.view(), nullptr),
                  Together(*tables[i], w.view(), x.view(), nullptr))
            << Info(type).name << " " << count << " " << i;
      }
    }
  }
}

// A block of weights as the products read it.
struct StoredBlock {
  std::array<int, 32> codes;  // with the format's offset subtracted
  float step;
  float minimum;
};

float HalfAt(const std::byte* p) {
  F16 half;
  std::memcpy(&half, p, sizeof half);
  return ToFloat(half);
}

StoredBlock BlockAt(DType type, const std::byte* p) {
  StoredBlock block = {.codes = {}, .step = HalfAt(p), .minimum = 0};
  if (type == DType::kQ8_0) {
    for (size_t k = 0; k < 32; ++k) block.codes[k] = static_cast<int8_t>(p[2 + k]);
    return block;
  }
  if (type == DType::kIQ4_NL || type == DType::kMXFP4) {
    const bool scale_of_bits = type == DType::kMXFP4;
    if (scale_of_bits) block.step = std::ldexp(1.0f, static_cast<int>(p[0]) - 128);
    for (size_t k = 0; k < 32; ++k) {
      const int byte = static_cast<int>(p[(scale_of_bits ? 1 : 2) + k % 16]);
      const auto place = static_cast<size_t>(k < 16 ? byte & 15 : byte >> 4);
      block.codes[k] = scale_of_bits ? kValuesMXFP4[place] : kValuesIQ4[place];
    }
    return block;
  }
  const bool five = type == DType::kQ5_0 || type == DType::kQ5_1;
  const bool minimum = type == DType::kQ4_1 || type == DType::kQ5_1;
  if (minimum) block.minimum = HalfAt(p + 2);
  const std::byte* rest = p + (minimum ? 4 : 2);
  uint32_t fifth = 0;
  if (five) std::memcpy(&fifth, rest, sizeof fifth);
  const std::byte* nibbles = rest + (five ? 4 : 0);
  for (size_t k = 0; k < 32; ++k) {
    const int byte = static_cast<int>(nibbles[k % 16]);
    const int low = k < 16 ? byte & 15 : byte >> 4;
    block.codes[k] = low + 16 * static_cast<int>(fifth >> k & 1) - (minimum ? 0 : five ? 16 : 8);
  }
  return block;
}

// The order of int_dot_blocks.inl, on codes of x that are found here.
float InOrder(DType type, const std::byte* w, std::span<const float> x) {
  std::array<float, 8> sums = {};
  for (size_t b = 0; b < x.size() / 32; ++b) {
    const StoredBlock block = BlockAt(type, w + b * static_cast<size_t>(Info(type).block_bytes));
    float most = 0;
    for (size_t k = 0; k < 32; ++k) most = std::max(most, std::abs(x[32 * b + k]));
    int dot = 0;
    int x_sum = 0;
    for (size_t k = 0; k < 32; ++k) {
      const int code = static_cast<int>(std::nearbyint(x[32 * b + k] * (127.0f / most)));
      dot += code * block.codes[k];
      x_sum += code;
    }
    const float scale = most / 127.0f;
    float& sum = sums[b % 8];
    sum = std::fma(static_cast<float>(dot), block.step * scale, sum);
    if (type == DType::kQ4_1 || type == DType::kQ5_1)
      sum = std::fma(block.minimum * scale, static_cast<float>(x_sum), sum);
  }
  const auto two = [&](size_t i) { return sums[i] + sums[i + 4]; };
  return (two(0) + two(2)) + (two(1) + two(3));
}

TEST(IntDotRows, BlocksAreAddedUpInTheStatedOrder) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kBlockTypes) {
      for (int64_t count : {32, 96, 256, 288, 800, 2048}) {
        const Tensor w = RandomBlocks(type, 18, count, 21);
        const Tensor x = Random(3, count, 22);
        for (int64_t rows : {1, 3}) {
          const std::vector<float> y = Together(*kernels, w.view(), x.view().Rows(0, rows), nullptr);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t o = 0; o < 18; ++o) {
              ASSERT_EQ(y[static_cast<size_t>(i * 18 + o)],
                        InOrder(type, w.view().RowBytes(o), x.view().Row<float>(i)))
                  << Info(type).name << " " << count << " row " << i << " output " << o;
            }
          }
        }
      }
    }
  }
}

// Memory that ends at a page which must not be read.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    size_ = (bytes + page_ - 1) / page_ * page_ + page_;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + size_ - page_, page_, PROT_NONE) != 0)
      throw std::runtime_error("no guarded page");
    data_ = base_ + size_ - page_ - bytes;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(base_, size_); }
  std::byte* data() { return data_; }

 private:
  size_t page_;
  size_t size_;
  std::byte* base_;
  std::byte* data_;
};

// A mapped file may end with the last row.
TEST(IntDotRows, ReadsNothingBehindTheWeights) {
  for (const IntDotKernels* kernels : Tables()) {
    for (DType type : kQuantised) {
      for (int64_t count : {32, 64, 256, 288, 768}) {
        if (count % Info(type).block_elements != 0) continue;
        for (int64_t outputs : {1, 16, 20}) {
          const Tensor w = RandomBlocks(type, outputs, count, 31);
          const Tensor x = Random(16, count, 32);
          GuardedBytes bytes(static_cast<size_t>(w.bytes()));
          std::memcpy(bytes.data(), w.view().data, static_cast<size_t>(w.bytes()));
          TensorView view = w.view();
          const std::vector<float> expected = Together(*kernels, view, x.view(), nullptr);
          view.data = bytes.data();
          for (int64_t rows : {1, 2, 16}) {
            const std::vector<float> y = Together(*kernels, view, x.view().Rows(0, rows), nullptr);
            ASSERT_TRUE(std::equal(y.begin(), y.end(), expected.begin())) << Info(type).name << " " << count;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace coppice
