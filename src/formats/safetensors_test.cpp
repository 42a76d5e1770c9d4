#include "formats/safetensors.h"

#include <gmock/gmock.h>

#include "base/limits.h"
#include "formats/hf_folder.h"
#include "formats/quants.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Bytes File(const std::string& header, size_t data) { return Bytes().String(header).Zeros(data); }

std::string RefusalOf(const Bytes& bytes) {
  const std::string message = ErrorOf([&] { ParseSafetensors(bytes.span(), "x.safetensors"); });
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr("x.safetensors: "));
  }
  return message;
}
std::string RefusalOf(const std::string& header, size_t data) { return RefusalOf(File(header, data)); }

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string header =
      "{" + Entry("b", "F16", "[2,1,2]", "[24,32]") + "," + Entry("a", "F32", "[2,3]", "[0,24]") + "," +
      Entry("scalar", "BF16", "[]", "[32,34]") + R"(,"__metadata__":{"format":"pt"}} )";
  Bytes file = Bytes().String(header + std::string(8 - header.size() % 8, ' '));
  for (int i = 0; i < 6; ++i) file.Put(static_cast<float>(i));
  file.Zeros(10);
  const auto parsed = ParseSafetensors(file.span(), "x");
  ASSERT_EQ(parsed.tensors.size(), 3u);
  EXPECT_EQ(parsed.tensors[0].name, "a");
  EXPECT_EQ(parsed.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(parsed.tensors[0].view.RowBytes(1), file.span().data() + file.text().size() - 34 + 12);
  EXPECT_EQ(parsed.tensors[1].view.rows, 2);
  EXPECT_EQ(parsed.tensors[1].view.cols, 2);
  EXPECT_EQ(parsed.tensors[1].view.dtype, DType::kF16);
  EXPECT_EQ(parsed.tensors[2].view.rows, 1);
  EXPECT_EQ(parsed.tensors[2].view.cols, 1);
  EXPECT_EQ(parsed.tensors[2].view.dtype, DType::kBF16);
  EXPECT_TRUE(parsed.copies.empty());
  EXPECT_EQ(parsed.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Safetensors, UnalignedTensorsAreCopied) {
  for (size_t shift = 0; shift < 4; ++shift) {
    const std::string header = "{" + Entry("a", "F32", "[2]", "[0,8]") + "}";
    const auto file =
        Bytes().String(header + std::string(4 - header.size() % 4 + shift, ' ')).Put(1.5f).Put(-2.5f);
    const auto parsed = ParseSafetensors(file.span(), "x");
    EXPECT_EQ(parsed.copies.size(), shift == 0 ? 0u : 1u);
    const TensorView view = parsed.tensors[0].view;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
    EXPECT_EQ(view.Row<float>(0)[0], 1.5f);
    EXPECT_EQ(view.Row<float>(0)[1], -2.5f);
  }
}

TEST(Safetensors, OtherTypesAreCheckedAndLeftOut) {
  const auto parsed = ParseSafetensors(
      File("{" + Entry("mask", "BOOL", "[4]", "[0,4]") + "," + Entry("w", "F32", "[1]", "[4,8]") + "," +
               Entry("ids", "I64", "[2]", "[8,24]") + "," + Entry("f4", "F4", "[3,2]", "[24,27]") + "}",
           27)
          .span(),
      "x");
  EXPECT_EQ(parsed.tensors.size(), 1u);
  EXPECT_EQ(parsed.skipped, (std::vector<std::string>{"mask", "ids", "f4"}));
  EXPECT_THAT(RefusalOf("{" + Entry("ids", "I64", "[2]", "[0,8]") + "}", 8), HasSubstr("'ids'"));
  EXPECT_THAT(RefusalOf("{" + Entry("f4", "F4", "[3]", "[0,2]") + "}", 2),
              HasSubstr("no whole number of bytes"));
}

TEST(Safetensors, EmptyTensorsAndEmptyFiles) {
  EXPECT_EQ(RefusalOf("{}", 0), "no error");
  EXPECT_EQ(RefusalOf("{" + Entry("z", "F32", "[0,4]", "[4,4]") + "," + Entry("a", "F32", "[1]", "[0,4]") +
                          "," + Entry("b", "F32", "[1]", "[4,8]") + "}",
                      8),
            "no error");
}

TEST(BadSafetensors, Row14_HeaderLength) {
  const std::string header = "{" + Entry("a", "F32", "[2]", "[0,8]") + "}";
  EXPECT_EQ(RefusalOf(header, 8), "no error");
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX,
                                limits::kMaxSafetensorsHeaderBytes + 1, uint64_t{header.size() + 9}}) {
    EXPECT_THAT(RefusalOf(Bytes().U64(length).Raw(header).Zeros(8)),
                HasSubstr("header length " + std::to_string(length)));
  }
  EXPECT_THAT(RefusalOf(Bytes().Raw("abc")), HasSubstr("too short"));
  EXPECT_THAT(RefusalOf(Bytes()), HasSubstr("too short"));
  // Above the limit, although the file is long enough.
  EXPECT_THAT(RefusalOf(Bytes().U64(limits::kMaxSafetensorsHeaderBytes + 1).Raw(header).Zeros(101'000'000)),
              HasSubstr("header length"));
}

TEST(BadSafetensors, Row14_HeaderIsNoObject) {
  EXPECT_THAT(RefusalOf("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(RefusalOf(" {}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(RefusalOf("{\"a\"", 0), HasSubstr("parse error"));
  EXPECT_THAT(RefusalOf("{}x", 0), HasSubstr("parse error"));
  EXPECT_THAT(RefusalOf(std::string("{}\0\0", 4), 0), HasSubstr("zero byte"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(RefusalOf(R"({"a":[]})", 0), HasSubstr("'a': not an object"));
}

TEST(BadSafetensors, Row14_TrailingBytes) {
  EXPECT_THAT(RefusalOf("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 9),
              HasSubstr("9 bytes of data, tensors cover 8"));
  EXPECT_THAT(RefusalOf("{}", 1), HasSubstr("cover 0"));
}

TEST(BadSafetensors, Row15_OverlapAndHole) {
  const auto two = [](const std::string& a, const std::string& b, size_t data) {
    return RefusalOf("{" + Entry("a", "F32", "[2]", a) + "," + Entry("b", "F32", "[2]", b) + "}", data);
  };
  EXPECT_EQ(two("[0,8]", "[8,16]", 16), "no error");
  EXPECT_EQ(two("[8,16]", "[0,8]", 16), "no error");
  EXPECT_THAT(two("[0,8]", "[4,12]", 12), AllOf(HasSubstr("'b'"), HasSubstr("overlaps")));
  EXPECT_THAT(two("[0,8]", "[0,8]", 8), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,8]", "[12,20]", 20), AllOf(HasSubstr("'b'"), HasSubstr("hole")));
  EXPECT_THAT(two("[4,12]", "[12,20]", 20), AllOf(HasSubstr("'a'"), HasSubstr("hole")));
}

TEST(BadSafetensors, Row15_SizesAndTypes) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return RefusalOf("{" + Entry("blk", dtype, shape, offsets) + "}", 16);
  };
  EXPECT_EQ(one("F32", "[4]", "[0,16]"), "no error");
  EXPECT_THAT(one("F16", "[4]", "[0,16]"), AllOf(HasSubstr("'blk'"), HasSubstr("needs 8 bytes of F16")));
  EXPECT_THAT(one("F32", "[5]", "[0,16]"), HasSubstr("needs 20 bytes"));
  EXPECT_THAT(one("F33", "[4]", "[0,16]"), HasSubstr("unknown dtype 'F33'"));
  EXPECT_THAT(one("F32", "[4]", "[0,17]"), HasSubstr("data_offsets [0, 17]"));
  EXPECT_THAT(one("F32", "[4]", "[16,0]"), HasSubstr("data_offsets [16, 0]"));
  EXPECT_THAT(one("F32", "[4]", "[0,18446744073709551615]"), HasSubstr("data_offsets"));
  for (const char* offsets : {"[0]", "[0,8,16]", "[-1,16]", "[0,16.0]", "[\"0\",16]", "{}", "null"}) {
    EXPECT_THAT(one("F32", "[4]", offsets), HasSubstr("not two integers")) << offsets;
  }
  for (const char* shape : {"[-4]", "[4.0]", "[\"4\"]", "[9223372036854775808]", "[null]"}) {
    EXPECT_THAT(one("F32", shape, "[0,16]"), HasSubstr("a dimension is no integer")) << shape;
  }
  for (const char* shape : {"{}", "4", "null"})
    EXPECT_THAT(one("F32", shape, "[0,16]"), HasSubstr("no shape"));
  EXPECT_THAT(one("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), HasSubstr("9 dimensions"));
  // Products of 2^64 and more, which would wrap to 0 or 16.
  EXPECT_THAT(one("F32", "[4294967296,4294967296]", "[0,16]"), HasSubstr("overflows"));
  EXPECT_THAT(one("F32", "[4611686018427387908]", "[0,16]"), HasSubstr("overflows"));
  EXPECT_THAT(RefusalOf("{" + Entry("z", "F32", "[4611686018427387904,16,0]", "[0,0]") + "}", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(RefusalOf(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", 16), HasSubstr("no dtype"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", 16), HasSubstr("no shape"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"F32","shape":[4]}})", 16), HasSubstr("data_offsets"));
}

TEST(BadSafetensors, Row15_TooManyTensors) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += Entry(std::to_string(i), "F32", "[0]", "[0,0]") + (i + 1 < 100'000 ? "," : "}");
  }
  EXPECT_THAT(RefusalOf(header, 0), HasSubstr("100000 tensors, the limit is"));
}

TEST(BadSafetensors, Row15_DuplicateName) {
  const std::string entry = Entry("a", "F32", "[0]", "[0,0]");
  EXPECT_THAT(RefusalOf("{" + entry + "," + entry + "}", 0), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(RefusalOf(R"({"":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0),
              HasSubstr("without a name"));
}

}  // namespace
}  // namespace coppice
