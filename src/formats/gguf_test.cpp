#include "formats/gguf.h"

#include <gmock/gmock.h>

#include <cmath>

#include "formats/gguf_parse.h"
#include "formats/quants.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

using testing::HasSubstr;

GgufMetadata MetadataOf(const Bytes& bytes) { return {"x.gguf", ParseGguf(bytes.span(), "x.gguf").metadata}; }

Bytes EveryType() {
  Bytes b;
  b.Head(0, 15, 2);
  b.String("u8").U32(0).Put<uint8_t>(200).String("i8").U32(1).Put<int8_t>(-3);
  b.String("u16").U32(2).Put<uint16_t>(65535).String("i16").U32(3).Put<int16_t>(-300);
  b.KeyU32("u32", 4000000000u).String("i32").U32(5).Put<int32_t>(-7);
  b.String("f32").U32(6).Put(0.5f).String("bool").U32(7).Put<uint8_t>(1);
  b.String("text").U32(8).String("h\xC3\xA9").String("f64").U32(12).Put(0.1);
  b.String("u64").U32(10).U64(UINT64_MAX).String("i64").U32(11).Put(INT64_MIN);
  b.String("ints").U32(9).U32(1).U64(3).Put<int8_t>(1).Put<int8_t>(-1).Put<int8_t>(5);
  b.String("floats").U32(9).U32(6).U64(2).Put(1.5f).Put(-2.5f);
  b.String("nested").U32(9).U32(9).U64(2);
  b.U32(8).U64(1).String("a").U32(7).U64(2).Put<uint8_t>(0).Put<uint8_t>(1);
  return b;
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  const GgufMetadata m = MetadataOf(EveryType());
  EXPECT_EQ(m.values().size(), 15u);
  EXPECT_EQ(m.Integer("u8"), 200);
  EXPECT_EQ(m.Integer("i8"), -3);
  EXPECT_EQ(m.Integer("u16"), 65535);
  EXPECT_EQ(m.Integer("i16"), -300);
  EXPECT_EQ(m.Integer("u32"), 4000000000);
  EXPECT_EQ(m.Integer("i32"), -7);
  EXPECT_EQ(m.Integer("i64"), INT64_MIN);
  EXPECT_EQ(m.Number("u64"), 0x1p64);
  EXPECT_EQ(m.Number("f32"), 0.5);
  EXPECT_EQ(m.Number("f64"), 0.1);
  EXPECT_EQ(m.Number("i8"), -3.0);
  EXPECT_EQ(m.Bool("bool"), true);
  EXPECT_EQ(m.String("text"), "h\xC3\xA9");
  EXPECT_EQ(m.Integers("ints"), (std::vector<int64_t>{1, -1, 5}));
  EXPECT_EQ(m.Floats("floats"), (std::vector<double>{1.5, -2.5}));
  const auto& nested = *std::get<std::shared_ptr<const GgufArray>>(m.values().find("nested")->second);
  EXPECT_EQ(nested.size(), 2u);
  EXPECT_EQ(nested.type, 9u);
  const auto& items = std::get<std::vector<GgufValue>>(nested.items);
  EXPECT_EQ(std::get<std::shared_ptr<const GgufArray>>(items[1])->size(), 2u);
}

TEST(Gguf, AbsentIsNotAnErrorAndAnotherTypeIs) {
  const GgufMetadata m = MetadataOf(EveryType());
  EXPECT_FALSE(m.Has("none"));
  EXPECT_TRUE(m.Has("u8"));
  EXPECT_EQ(m.String("none"), std::nullopt);
  EXPECT_EQ(m.Integer("none"), std::nullopt);
  EXPECT_EQ(m.Strings("none"), nullptr);
  EXPECT_EQ(m.Floats("none"), std::nullopt);
  EXPECT_THAT(ErrorOf([&] { m.String("u8"); }), HasSubstr("x.gguf: key 'u8' is not a string"));
  EXPECT_THAT(ErrorOf([&] { m.Integer("f32"); }), HasSubstr("'f32' is not an integer"));
  EXPECT_THAT(ErrorOf([&] { m.Integer("bool"); }), HasSubstr("'bool'"));
  EXPECT_THAT(ErrorOf([&] { m.Integer("u64"); }), HasSubstr("18446744073709551615"));
  EXPECT_THAT(ErrorOf([&] { m.Number("text"); }), HasSubstr("'text'"));
  EXPECT_THAT(ErrorOf([&] { m.Bool("u8"); }), HasSubstr("'u8'"));
  EXPECT_THAT(ErrorOf([&] { m.Strings("ints"); }), HasSubstr("'ints'"));
  EXPECT_THAT(ErrorOf([&] { m.Integers("floats"); }), HasSubstr("'floats'"));
  EXPECT_THAT(ErrorOf([&] { m.Floats("ints"); }), HasSubstr("'ints'"));
}

TEST(Gguf, FindsTensorsThroughTheAlignmentOfTheFile) {
  for (const uint32_t alignment : {8u, 32u, 256u}) {
    Bytes b;
    b.Head(2, 1).KeyU32("general.alignment", alignment);
    b.Tensor("a", {3, 2}, 0, 0).Tensor("b", {32}, 8, 256).PadTo(alignment);
    const size_t start = b.text().size();
    for (int i = 0; i < 6; ++i) b.Put(static_cast<float>(i));
    b.Zeros(256 - 24).Zeros(34);
    const auto parsed = ParseGguf(b.span(), "x.gguf");
    ASSERT_EQ(parsed.tensors.size(), 2u);
    const StoredTensor& a = parsed.tensors[0];
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(a.view.rows, 2);
    EXPECT_EQ(a.view.cols, 3);
    EXPECT_EQ(a.view.data, b.span().data() + start);
    float last;
    std::memcpy(&last, a.view.RowBytes(1) + 8, sizeof(last));
    EXPECT_EQ(last, 5.0f);
    EXPECT_EQ(parsed.tensors[1].view.dtype, DType::kQ8_0);
    EXPECT_EQ(parsed.tensors[1].view.data, b.span().data() + start + 256);
  }
}

TEST(Gguf, FourDimensionsFoldIntoRows) {
  Bytes b;
  b.Head(1, 0).Tensor("a", {2, 3, 4, 5}, 1, 0).PadTo(32).Zeros(240);
  const auto parsed = ParseGguf(b.span(), "x.gguf");
  EXPECT_EQ(parsed.tensors[0].shape, (std::vector<int64_t>{5, 4, 3, 2}));
  EXPECT_EQ(parsed.tensors[0].view.rows, 60);
  EXPECT_EQ(parsed.tensors[0].view.cols, 2);
}

TEST(Gguf, WithoutTensorsTheFileMayEndBeforeTheData) {
  Bytes b;
  b.Head(0, 1).KeyU32("general.alignment", 4096);
  EXPECT_EQ(ParseGguf(b.span(), "x.gguf").tensors.size(), 0u);
}

TEST(Gguf, OpensEveryVocabulary) {
  COPPICE_NEEDS_SHARED("data/tokenizer");
  const std::pair<const char*, size_t> files[] = {{"ggml-vocab-llama-spm.gguf", 32000},
                                                  {"ggml-vocab-llama-bpe.gguf", 128256},
                                                  {"ggml-vocab-gpt-2.gguf", 50257},
                                                  {"ggml-vocab-qwen2.gguf", 151936}};
  for (const auto& [name, tokens] : files) {
    const std::string path = SharedPath("data/tokenizer/") + name;
    EXPECT_TRUE(LooksLikeGguf(path));
    const auto file = GgufFile::Open(path);
    EXPECT_EQ(file->version(), 3u);
    EXPECT_TRUE(file->tensors().empty());
    const auto* vocabulary = file->metadata().Strings("tokenizer.ggml.tokens");
    ASSERT_NE(vocabulary, nullptr) << name;
    EXPECT_EQ(vocabulary->size(), tokens) << name;
  }
}

TEST(Gguf, OpensEveryModel) {
  COPPICE_NEEDS_SHARED("models");
  struct Case {
    const char* path;
    size_t tensors;
    const char* tensor;
    std::vector<int64_t> shape;
    DType type;
  };
  const Case cases[] = {
      {"models/stories260K/stories260K.gguf", 48, "blk.4.attn_k.weight", {32, 64}, DType::kF32},
      {"models/random/llama-2-tiny-random.gguf", 12, "token_embd.weight", {32000, 8}, DType::kF16},
      {"models/coppice-mini/coppice-mini-f16.gguf", 92, "blk.0.attn_norm.weight", {256}, DType::kF32},
      {"data/parity/tiny_llama_f32.gguf", 21, "blk.0.ffn_down.weight", {8, 12}, DType::kF32},
      {"data/parity/tiny_llama_f16.gguf", 21, "token_embd.weight", {11, 8}, DType::kF16},
      {"data/parity/tiny_llama_q8.gguf", 20, "token_embd.weight", {8, 32}, DType::kQ8_0},
      {"data/parity/tiny_kquant.gguf", 5, "kq.Q6_K.weight", {1024}, DType::kQ6_K},
  };
  for (const Case& c : cases) {
    const auto file = GgufFile::Open(SharedPath(c.path));
    EXPECT_EQ(file->path(), SharedPath(c.path));
    EXPECT_EQ(file->tensors().size(), c.tensors) << c.path;
    EXPECT_EQ(file->Find("no such tensor"), nullptr);
    const StoredTensor* tensor = file->Find(c.tensor);
    ASSERT_NE(tensor, nullptr) << c.path;
    EXPECT_EQ(tensor->shape, c.shape) << c.path;
    EXPECT_EQ(tensor->view.dtype, c.type) << c.path;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->view.data) % 32, 0u) << c.path;
  }
}

// The values of every tensor are finite, which shows that no tensor is read from a wrong place.
TEST(Gguf, ModelsHoldFiniteValues) {
  COPPICE_NEEDS_SHARED("models");
  for (const char* path : {"models/stories260K/stories260K.gguf", "data/parity/tiny_llama_q8.gguf"}) {
    const auto file = GgufFile::Open(SharedPath(path));
    for (const StoredTensor& tensor : file->tensors()) {
      std::vector<float> row(static_cast<size_t>(tensor.view.cols));
      double squares = 0;
      for (int64_t i = 0; i < tensor.view.rows; ++i) {
        DequantizeRow(tensor.view.dtype, tensor.view.RowBytes(i), row);
        for (const float v : row) squares += double{v} * v;
      }
      EXPECT_TRUE(std::isfinite(squares)) << tensor.name;
      EXPECT_GT(squares, 0) << tensor.name;
      EXPECT_LT(squares / static_cast<double>(tensor.view.rows * tensor.view.cols), 1e3) << tensor.name;
    }
  }
}

TEST(Gguf, RefusesTheV1File) {
  COPPICE_NEEDS_SHARED("models/stories260K");
  const std::string path = SharedPath("models/stories260K/stories260K.gguf-v1.gguf");
  EXPECT_TRUE(LooksLikeGguf(path));
  EXPECT_THAT(ErrorOf([&] { GgufFile::Open(path); }), HasSubstr("unsupported version 1"));
}

TEST(Gguf, LooksLikeGgufReadsTheMagicOnly) {
  const TempFolder folder;
  EXPECT_TRUE(LooksLikeGguf(folder.Write("a", "GGUF")));
  EXPECT_TRUE(LooksLikeGguf(folder.Write("b", "FUGGxxxx")));
  EXPECT_FALSE(LooksLikeGguf(folder.Write("c", "GGU")));
  EXPECT_FALSE(LooksLikeGguf(folder.Write("d", "ggml....")));
  EXPECT_FALSE(LooksLikeGguf(folder.Path("none")));
  EXPECT_FALSE(LooksLikeGguf(folder.path()));
}

}  // namespace
}  // namespace coppice
