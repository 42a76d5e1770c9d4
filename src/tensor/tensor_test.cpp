#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace coppice {
namespace {

template <typename T>
concept HasView = requires(T&& t) {
  std::forward<T>(t).view();
};
template <typename T>
concept HasMutableView = requires(T&& t) {
  std::forward<T>(t).mutable_view();
};

// A view of a temporary would dangle, so it does not compile; neither does an implicit copy.
static_assert(HasView<Tensor&> && HasView<const Tensor&> && HasMutableView<Tensor&>);
static_assert(!HasView<Tensor> && !HasView<const Tensor> && !HasMutableView<Tensor>);
static_assert(!HasMutableView<const Tensor&>);
static_assert(!std::is_copy_constructible_v<Tensor> && !std::is_copy_assignable_v<Tensor>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);
static_assert(!std::is_convertible_v<TensorView, MutableTensorView>);

TEST(Tensor, ShapeAlignmentAndZeros) {
  const Tensor t = Tensor::Zeros(DType::kF32, 3, 5);
  EXPECT_EQ(t.bytes(), 60);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.view().data) % 64, 0u);
  for (int64_t i = 0; i < 3; ++i) {
    for (float v : t.view().Row<float>(i)) EXPECT_EQ(v, 0.0f);
  }
  EXPECT_EQ(Tensor(DType::kQ4_K, 2, 512).bytes(), 2 * 2 * 144);
  EXPECT_EQ(Tensor().bytes(), 0);
  const Tensor none(DType::kF32, 0, 7);
  EXPECT_TRUE(none.view().empty());
}

TEST(Tensor, BadShapesFail) {
  EXPECT_THROW(Tensor(DType::kQ8_0, 1, 33), CheckFailure);  // not whole blocks
  EXPECT_THROW(Tensor(DType::kF32, -1, 4), CheckFailure);
}

TEST(Tensor, ResizeKeepsMemoryThatFits) {
  Tensor t(DType::kF32, 8, 8);
  const std::byte* memory = t.view().data;
  t.Resize(DType::kBF16, 4, 8);
  EXPECT_EQ(t.view().data, memory);
  EXPECT_EQ(t.dtype(), DType::kBF16);
  EXPECT_EQ(t.view().stride, 16);
  t.Resize(DType::kF32, 8, 8);
  EXPECT_EQ(t.view().data, memory);
  t.Resize(DType::kF32, 800, 8);
  EXPECT_EQ(t.rows(), 800);
  t.mutable_view().Row<float>(799)[7] = 1;  // a sanitizer checks that this memory is allocated
}

TEST(Tensor, CloneIsSeparate) {
  Tensor t = Tensor::Zeros(DType::kF32, 1, 2);
  Tensor copy = t.Clone();
  t.mutable_view().Row<float>(0)[1] = 3;
  EXPECT_EQ(copy.view().Row<float>(0)[1], 0.0f);
}

TEST(TensorView, RowsAndColumns) {
  Tensor t(DType::kF32, 4, 6);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 6; ++c) t.mutable_view().Row<float>(i)[c] = static_cast<float>(10 * i + c);
  }
  const TensorView part = t.view().Rows(1, 2).Cols(2, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.Row<float>(1).size(), 3u);
  EXPECT_EQ(part.Row<float>(0)[0], 12.0f);
  EXPECT_EQ(part.Row<float>(1)[2], 24.0f);
  const Tensor blocks(DType::kQ8_0, 2, 96);
  EXPECT_EQ(blocks.view().Cols(64, 32).data - blocks.view().data, 68);
}

}  // namespace
}  // namespace coppice
