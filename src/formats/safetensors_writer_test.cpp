#include "formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include "base/mmap.h"
#include "formats/safetensors.h"
#include "test_files.h"

namespace coppice {
namespace {

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<F16> b = {ToF16(0.5f), ToF16(-2.0f), ToF16(7.0f)};
  const std::vector<BF16> c = {ToBF16(3.0f)};
  const std::vector<SafetensorsEntry> entries = {{"a", DType::kF32, {2, 3}, std::as_bytes(std::span(a))},
                                                 {"b", DType::kF16, {3}, std::as_bytes(std::span(b))},
                                                 {"c", DType::kBF16, {1, 1}, std::as_bytes(std::span(c))}};
  const std::string path = folder.Path("t.safetensors");
  WriteSafetensors(path, "test", entries, {{"key", "a \"quoted\" value\n"}, {"name", "not UTF-8: \xff"}});
  EXPECT_EQ(folder.CountFiles(), 1u);
  const MappedFile file(path);
  const ParsedSafetensors parsed = ParseSafetensors(file.bytes(), path);
  ASSERT_EQ(parsed.tensors.size(), 3u);
  EXPECT_TRUE(parsed.copies.empty());  // all tensors are aligned
  EXPECT_EQ(parsed.tensors[0].name, "a");
  EXPECT_EQ(parsed.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(parsed.tensors[0].view.Row<float>(1)[2], 6);
  EXPECT_EQ(ToFloat(parsed.tensors[1].view.Row<F16>(0)[1]), -2);
  EXPECT_EQ(ToFloat(parsed.tensors[2].view.Row<BF16>(0)[0]), 3);
  EXPECT_EQ(parsed.metadata.at("key"), "a \"quoted\" value\n");
  EXPECT_EQ(parsed.metadata.at("name"), "not UTF-8: \xEF\xBF\xBD");
}

TEST(SafetensorsWriter, FailuresNameTheFile) {
  const TempFolder folder;
  const std::string nowhere = folder.Path("no/such/folder/t.safetensors");
  EXPECT_NE(ErrorOf([&] { WriteSafetensors(nowhere, "test", {}, {}); }).find(nowhere), std::string::npos);
}

}  // namespace
}  // namespace coppice
