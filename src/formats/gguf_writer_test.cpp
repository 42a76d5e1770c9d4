#include "formats/gguf_writer.h"

#include <gmock/gmock.h>

#include <cstring>

#include "formats/gguf.h"
#include "formats/quants.h"
#include "formats/test_bytes.h"
#include "full_disk.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::function<void(std::span<std::byte>)> Fill(DType type, std::vector<float> values) {
  return [=](std::span<std::byte> out) { QuantizeRow(type, values, out.data()); };
}

std::vector<float> ValuesOf(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.view.rows * tensor.view.cols));
  DequantizeRow(tensor.view.dtype, tensor.view.data, values);  // rows are contiguous
  return values;
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TempFolder folder;
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("llama.block_count", 3u);
  writer.Add("llama.rope.freq_base", 10000.5f);
  writer.Add("tokenizer.ggml.add_bos_token", true);
  writer.Add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "", "\xC3\xA9"});
  writer.Add("tokenizer.ggml.scores", std::vector<float>{0, -1.5f, -2});
  writer.Add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, -1});
  std::vector<float> values(64 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 128) - 64;
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};
  for (const DType type : types) {
    writer.AddTensor(std::string(Info(type).name), type, {3, 64}, Fill(type, values));
  }
  writer.AddTensor("norm", DType::kF32, {5}, Fill(DType::kF32, {1, 2, 3, 4, 5}));
  const std::string path = folder.Path("m.gguf");
  writer.Write(path);

  const auto file = GgufFile::Open(path);
  EXPECT_EQ(folder.CountFiles(), 1u);
  EXPECT_EQ(file->version(), 3u);
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(m.values().size(), 7u);
  EXPECT_EQ(m.String("general.architecture"), "llama");
  EXPECT_EQ(m.Integer("llama.block_count"), 3);
  EXPECT_EQ(m.Number("llama.rope.freq_base"), 10000.5);
  EXPECT_EQ(m.Bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(*m.Strings("tokenizer.ggml.tokens"), (std::vector<std::string>{"<s>", "", "\xC3\xA9"}));
  EXPECT_EQ(m.Floats("tokenizer.ggml.scores"), (std::vector<double>{0, -1.5, -2}));
  EXPECT_EQ(m.Integers("tokenizer.ggml.token_type"), (std::vector<int64_t>{3, 1, -1}));
  ASSERT_EQ(file->tensors().size(), 6u);
  for (const DType type : types) {
    const StoredTensor* tensor = file->Find(Info(type).name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->view.dtype, type);
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 64}));
    std::vector<std::byte> bytes(static_cast<size_t>(BytesOf(type, 192)));
    QuantizeRow(type, values, bytes.data());
    EXPECT_EQ(std::memcmp(tensor->view.data, bytes.data(), bytes.size()), 0) << Info(type).name;
  }
  EXPECT_EQ(ValuesOf(*file->Find("F32")), values);
  EXPECT_EQ(file->tensors()[5].shape, (std::vector<int64_t>{5}));
  EXPECT_EQ(ValuesOf(file->tensors()[5]), (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(std::filesystem::file_size(path) % 32, 0u);
}

TEST(GgufWriter, EveryTypeKeepsItsNumber) {
  const TempFolder folder;
  GgufWriter writer;
  for (int i = 0; i <= static_cast<int>(DType::kIQ3_S); ++i) {
    const DType type = static_cast<DType>(i);
    writer.AddTensor(std::string(Info(type).name), type, {2, 256},
                     [](std::span<std::byte> out) { std::memset(out.data(), 1, out.size()); });
  }
  writer.Write(folder.Path("m.gguf"));
  const auto file = GgufFile::Open(folder.Path("m.gguf"));
  ASSERT_EQ(file->tensors().size(), 21u);
  for (const StoredTensor& tensor : file->tensors()) EXPECT_EQ(tensor.name, Info(tensor.view.dtype).name);
}

TEST(GgufWriter, AnErrorLeavesNothingBehind) {
  const TempFolder folder;
  GgufWriter writer;
  writer.AddTensor("a", DType::kF32, {8}, [](std::span<std::byte>) { throw Error("no data"); });
  EXPECT_EQ(ErrorOf([&] { writer.Write(folder.Path("m.gguf")); }), "no data");
  EXPECT_EQ(folder.CountFiles(), 0u);
  // A folder has the name of the file.
  GgufWriter good;
  std::filesystem::create_directory(folder.Path("taken.gguf"));
  EXPECT_THAT(ErrorOf([&] { good.Write(folder.Path("taken.gguf")); }),
              HasSubstr("taken.gguf: exists and is not a regular file"));
  EXPECT_EQ(folder.CountFiles(), 1u);
  EXPECT_THAT(ErrorOf([&] { good.Write(folder.Path("none/m.gguf")); }), HasSubstr("cannot create"));
}

TEST(GgufWriter, AFullDiskIsAnError) {
  const TempFolder folder;
  const std::string path = folder.Path("m.gguf");
  std::string error;
  {
    const FullDisk full;
    error = ErrorOf([&] { GgufWriter().Write(path); });
  }
  EXPECT_THAT(error, HasSubstr("m.gguf: cannot write"));
  EXPECT_EQ(folder.CountFiles(), 0u);
}

TEST(GgufWriter, MisuseIsAProgrammersError) {
  GgufWriter writer;
  const auto fill = [](std::span<std::byte>) {};
  EXPECT_THROW(writer.Add("", 1u), CheckFailure);
  EXPECT_THROW(writer.AddTensor("", DType::kF32, {1}, fill), CheckFailure);
  EXPECT_THROW(writer.AddTensor("a", DType::kF32, {}, fill), CheckFailure);
  EXPECT_THROW(writer.AddTensor("a", DType::kF32, {0}, fill), CheckFailure);
  EXPECT_THROW(writer.AddTensor("a", DType::kQ8_0, {33}, fill), CheckFailure);
}

// Split i holds tensor t<i>.
struct Split {
  uint32_t number = 0, count = 3, total = 3;
  std::string tensor = "t0";
  std::string name = "";  // general.name, unless empty
};

void WriteSplit(const TempFolder& folder, const std::string& file, const Split& split) {
  GgufWriter writer;
  writer.Add("split.no", split.number);
  writer.Add("split.count", split.count);
  writer.Add("split.tensors.count", split.total);
  if (!split.name.empty()) writer.Add("general.name", split.name);
  writer.AddTensor(split.tensor, DType::kF32, {2}, Fill(DType::kF32, {static_cast<float>(split.number), 9}));
  writer.Write(folder.Path(file));
}

class Splits : public testing::Test {
 protected:
  void SetUp() override {
    WriteSplit(folder_, "m-00001-of-00003.gguf", {.number = 0, .tensor = "t0", .name = "mine"});
    WriteSplit(folder_, "m-00002-of-00003.gguf", {.number = 1, .tensor = "t1"});
    WriteSplit(folder_, "m-00003-of-00003.gguf", {.number = 2, .tensor = "t2"});
  }
  std::string OpenError(const std::string& name = "m-00001-of-00003.gguf") {
    return ErrorOf([&] { GgufFile::Open(folder_.Path(name)); });
  }
  // Replaces the second split and returns the error.
  std::string ErrorWithSecond(const Split& split) {
    WriteSplit(folder_, "m-00002-of-00003.gguf", split);
    return OpenError();
  }
  TempFolder folder_;
};

TEST_F(Splits, AllAreReadAsOne) {
  const auto file = GgufFile::Open(folder_.Path("m-00001-of-00003.gguf"));
  ASSERT_EQ(file->tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const StoredTensor* tensor = file->Find("t" + std::to_string(i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(ValuesOf(*tensor), (std::vector<float>{static_cast<float>(i), 9}));
  }
  EXPECT_EQ(file->metadata().String("general.name"), "mine");
}

TEST_F(Splits, Row13_MissingSplit) {
  std::filesystem::remove(folder_.Path("m-00002-of-00003.gguf"));
  EXPECT_THAT(OpenError(), HasSubstr("m-00002-of-00003.gguf"));
}

TEST_F(Splits, Row13_SplitOfAnotherModel) {
  const auto second = HasSubstr("m-00002-of-00003.gguf: ");
  EXPECT_THAT(ErrorWithSecond({.number = 2, .tensor = "t1"}),
              AllOf(second, HasSubstr("split.no is 2, expected 1")));
  EXPECT_THAT(ErrorWithSecond({.number = 1, .count = 4, .tensor = "t1"}),
              AllOf(second, HasSubstr("split.count")));
  EXPECT_THAT(ErrorWithSecond({.number = 1, .total = 7, .tensor = "t1"}),
              AllOf(second, HasSubstr("split.tensors.count is 7, expected 3")));
  EXPECT_THAT(ErrorWithSecond({.number = 1, .tensor = "t0"}), AllOf(second, HasSubstr("tensor 't0' is in ")));
  EXPECT_THAT(ErrorWithSecond({.number = 1, .tensor = "t1", .name = "yours"}),
              AllOf(second, HasSubstr("another model")));
  EXPECT_EQ(ErrorWithSecond({.number = 1, .tensor = "t1", .name = "mine"}), "no error");
  GgufWriter().Write(folder_.Path("m-00002-of-00003.gguf"));
  EXPECT_THAT(OpenError(), AllOf(second, HasSubstr("split.no is absent")));
  folder_.Write("m-00002-of-00003.gguf", "GGUF");
  EXPECT_THAT(OpenError(), second);
}

TEST_F(Splits, Row13_NamesAndCounts) {
  EXPECT_THAT(OpenError("m-00002-of-00003.gguf"), HasSubstr("split 2 of 3, open the first"));
  std::filesystem::copy_file(folder_.Path("m-00001-of-00003.gguf"), folder_.Path("renamed.gguf"));
  EXPECT_THAT(OpenError("renamed.gguf"), HasSubstr("-00001-of-00003.gguf"));
  WriteSplit(folder_, "huge.gguf", {.count = 0xFFFFFFFF});
  EXPECT_THAT(OpenError("huge.gguf"), HasSubstr("split.count is 4294967295"));
  WriteSplit(folder_, "none.gguf", {.count = 0});
  EXPECT_THAT(OpenError("none.gguf"), HasSubstr("split.count is 0"));
  WriteSplit(folder_, "single.gguf", {.count = 1, .total = 1});
  EXPECT_EQ(OpenError("single.gguf"), "no error");
  for (int i = 0; i < 3; ++i) {  // the splits agree, but a tensor is missing
    WriteSplit(folder_, fmt::format("m-{:05}-of-00003.gguf", i + 1),
               {.number = static_cast<uint32_t>(i), .total = 4, .tensor = "t" + std::to_string(i)});
  }
  EXPECT_THAT(OpenError(), HasSubstr("3 splits hold 3 tensors, split.tensors.count is 4"));
}

}  // namespace
}  // namespace coppice
