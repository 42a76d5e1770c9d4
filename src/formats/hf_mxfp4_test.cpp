#include "formats/hf_mxfp4.h"

#include <gmock/gmock.h>

#include <cmath>

#include "formats/hf_folder.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

using testing::HasSubstr;

std::vector<std::byte> BytesFrom(size_t count, unsigned step) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * step + 3);
  return bytes;
}

// Two experts of three rows of two blocks.
TEST(HfMxfp4, JoinsCodesAndScales) {
  const std::vector<std::byte> codes = BytesFrom(2 * 3 * 2 * 16, 37);
  std::vector<std::byte> scales(2 * 3 * 2);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(120 + i);
  std::vector<Tensor> copies;
  const std::vector<StoredTensor> joined =
      JoinMxfp4({{"x_scales", {2, 3, 2}, scales}, {"x_blocks", {2, 3, 2, 16}, codes}}, "f", copies);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].name, "x");
  EXPECT_EQ(joined[0].shape, (std::vector<int64_t>{2, 3, 64}));
  const TensorView& view = joined[0].view;
  ASSERT_EQ(view.rows, 6);
  ASSERT_EQ(view.cols, 64);
  // The values of E2M1 in the standard's table 5, by code.
  const float values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::vector<float> row(64);
  for (int64_t r = 0; r < 6; ++r) {
    DequantizeRow(DType::kMXFP4, view.RowBytes(r), row);
    for (int64_t c = 0; c < 64; ++c) {
      const auto pair = static_cast<unsigned>(codes[static_cast<size_t>(r * 32 + c / 2)]);
      const unsigned code = c % 2 == 0 ? pair & 15 : pair >> 4;
      const int exponent = static_cast<int>(scales[static_cast<size_t>(r * 2 + c / 32)]) - 127;
      ASSERT_EQ(row[static_cast<size_t>(c)], std::ldexp(values[code], exponent)) << r << " " << c;
    }
  }
}

TEST(HfMxfp4, OtherBytesAreNoTensor) {
  const std::vector<std::byte> bytes(32);
  std::vector<Tensor> copies;
  EXPECT_TRUE(JoinMxfp4({{"mask", {32}, bytes}, {"x_blocks", {2, 16}, bytes}}, "f", copies).empty());
}

TEST(HfMxfp4, ShapesThatDoNotFitAreNamed) {
  const std::vector<std::byte> bytes(64);
  const auto refusal = [&](std::vector<int64_t> blocks, std::vector<int64_t> scales) {
    std::vector<Tensor> copies;
    const auto part = [&](const std::vector<int64_t>& shape) {
      size_t count = 1;
      for (const int64_t n : shape) count *= static_cast<size_t>(n);
      return std::span(bytes).first(count);
    };
    return ErrorOf([&] {
      JoinMxfp4({{"x_blocks", blocks, part(blocks)}, {"x_scales", scales, part(scales)}}, "f", copies);
    });
  };
  EXPECT_THAT(refusal({2, 1, 16}, {1, 2}),
              HasSubstr("[safetensors] f: tensors 'x_blocks' [2, 1, 16] and 'x_scales' [1, 2] do not fit"));
  EXPECT_THAT(refusal({2, 2, 8}, {2, 2}), HasSubstr("do not fit each other"));
  EXPECT_THAT(refusal({2, 16}, {2}), HasSubstr("do not fit each other"));
  EXPECT_THAT(refusal({16}, {}), HasSubstr("do not fit each other"));
}

TEST(HfMxfp4, FoldersOpenPairsAcrossShards) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  const auto file = [](const char* name, const char* shape, size_t bytes) {
    const std::string header =
        fmt::format(R"({{"{}":{{"dtype":"U8","shape":{},"data_offsets":[0,{}]}}}})", name, shape, bytes);
    return Bytes().String(header).Zeros(bytes).text();
  };
  folder.Write("s1.safetensors", file("x_blocks", "[1,2,1,16]", 32));
  folder.Write("s2.safetensors", file("x_scales", "[1,2,1]", 2));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"x_blocks":"s1.safetensors","x_scales":"s2.safetensors"}})");
  const auto opened = HfFolder::Open(folder.path());
  const StoredTensor* x = opened->Find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->shape, (std::vector<int64_t>{1, 2, 32}));
  EXPECT_EQ(x->view.dtype, DType::kMXFP4);
}

}  // namespace
}  // namespace coppice
