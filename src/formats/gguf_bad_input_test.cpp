// Invalid inputs that a GGUF reader must reject, with reports of such inputs in other engines:
// CVE-2024-21802, CVE-2025-53630, CVE-2026-27940, CVE-2026-33298, CVE-2026-7482, CVE-2026-53923 and the
// issues named below.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/limits.h"
#include "formats/gguf.h"
#include "formats/gguf_parse.h"
#include "formats/test_bytes.h"

namespace {
std::atomic<size_t> largest_allocation{0};
}

// Every allocation of this program goes through this operator, so that a test can check that the reader
// rejects a file before it allocates.
[[gnu::noinline]] void* operator new(size_t size) {
  if (size > largest_allocation) largest_allocation = size;
  if (void* p = std::malloc(size > 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The error message. Rejecting the file must not allocate more than a few times its size.
std::string Refusal(const Bytes& bytes) {
  largest_allocation = 0;
  const std::string message = ErrorOf([&] { ParseGguf(bytes.span(), "x.gguf"); });
  EXPECT_LT(largest_allocation, 4096 + 8 * bytes.text().size()) << message;
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr("[gguf] x.gguf: "));
  }
  return message;
}

// A file with one tensor and `data` bytes of data.
Bytes OneTensor(std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset, size_t data) {
  return Bytes().Head(1, 0).Tensor("blk.0.w", dims, type, offset).PadTo(32).Zeros(data);
}

TEST(BadGguf, Row1_EndsAnywhereInTheHeader) {
  const std::string whole =
      Bytes().Head(1, 1).KeyU32("k", 3).Tensor("a", {4}, 0, 0).PadTo(32).Zeros(16).text();
  EXPECT_EQ(Refusal(Bytes().Raw(whole)), "no error");
  EXPECT_THAT(Refusal(Bytes().Raw(whole.substr(0, 8))), HasSubstr("offset 8"));
  EXPECT_THAT(Refusal(Bytes().Raw(whole.substr(0, 16))), HasSubstr("offset 16"));
  EXPECT_THAT(Refusal(Bytes().Raw(whole.substr(0, 24))), HasSubstr("offset 24"));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(Refusal(Bytes().Raw(whole.substr(0, size))), "no error") << size;
  }
  EXPECT_THAT(Refusal(Bytes()), HasSubstr("offset 0"));
  EXPECT_THAT(Refusal(Bytes().Raw("PK\3\4....")), HasSubstr("not a GGUF file"));
}

TEST(BadGguf, Row2_OtherVersionsAndBigEndian) {
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    EXPECT_THAT(Refusal(Bytes().Head(0, 0, version)),
                HasSubstr("unsupported version " + std::to_string(version)));
  }
  for (const uint32_t version : {1u << 24, 2u << 24, 3u << 24}) {
    EXPECT_THAT(Refusal(Bytes().Head(0, 0, version)),
                HasSubstr("unsupported version: the file is big-endian"));
  }
  EXPECT_THAT(Refusal(Bytes().Raw("FUGG").U32(3u << 24).Zeros(16)), HasSubstr("unsupported version"));
  EXPECT_EQ(Refusal(Bytes().Head(0, 0, 2)), "no error");
  EXPECT_EQ(Refusal(Bytes().Head(0, 0, 3)), "no error");
}

TEST(BadGguf, Row3_MoreTensorsOrKeysThanBytes) {
  const auto file = [](uint64_t tensors, uint64_t keys) { return Bytes().Head(tensors, keys).Zeros(200); };
  for (const uint64_t count : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1} << 32, limits::kMaxGgufKeys + 1}) {
    EXPECT_THAT(Refusal(file(count, 0)), HasSubstr("tensors"));
    EXPECT_THAT(Refusal(file(0, count)), HasSubstr("keys"));
  }
  EXPECT_THAT(Refusal(file(limits::kMaxGgufTensors, 0)), HasSubstr("bytes are left"));
  EXPECT_THAT(Refusal(file(0, limits::kMaxGgufKeys)), HasSubstr("bytes are left"));
  EXPECT_THAT(Refusal(file(7, 0)), HasSubstr("200 bytes are left"));
  EXPECT_THAT(Refusal(file(0, 15)), HasSubstr("200 bytes are left"));
}

TEST(BadGguf, Row4_StringsLongerThanTheFile) {  // ggml#1516
  for (const uint64_t length :
       {UINT64_MAX, uint64_t{1} << 30, uint64_t{1} << 63, UINT64_MAX - 40, uint64_t{141}}) {
    EXPECT_THAT(Refusal(Bytes().Head(0, 1).U64(length).Zeros(128)), HasSubstr("are left")) << length;
    Bytes value;
    value.Head(0, 1).String("k").U32(8).U64(length).Zeros(115);
    EXPECT_EQ(value.text().size(), 160u);
    EXPECT_THAT(Refusal(value), HasSubstr("are left")) << length;
    EXPECT_THAT(Refusal(Bytes().Head(1, 0).U64(length).Zeros(128)), HasSubstr("are left")) << length;
    // An array of that length, for every element type.
    for (uint32_t type = 0; type <= 12; ++type) {
      EXPECT_THAT(Refusal(Bytes().Head(0, 1).String("k").U32(9).U32(type).U64(length).Zeros(100)),
                  HasSubstr("are left"))
          << length << " of type " << type;
    }
  }
}

TEST(BadGguf, Row5_KeysEmptyDoubleTooLongOrNotUtf8) {  // llama.cpp#24884
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).KeyU32("", 1).Zeros(8)), HasSubstr("empty key"));
  EXPECT_THAT(Refusal(Bytes().Head(0, 2).KeyU32("a.b", 1).KeyU32("a.b", 1)),
              HasSubstr("duplicate key 'a.b'"));
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).KeyU32(std::string(65536, 'k'), 1)), HasSubstr("65536 bytes"));
  EXPECT_EQ(Refusal(Bytes().Head(0, 1).KeyU32(std::string(65535, 'k'), 1)), "no error");
  for (const char* bad : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80",
                          "\xf0\x80\x80\x80", "\x80", "\xf8\x88\x80\x80\x80", "\xc3\x28", "a\nb\xff"}) {
    EXPECT_THAT(Refusal(Bytes().Head(0, 1).KeyU32(bad, 1)), HasSubstr("not UTF-8"));
  }
  for (const char* good : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\xb3", "\xef\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_EQ(Refusal(Bytes().Head(0, 1).KeyU32(good, 1)), "no error");
  }
}

TEST(BadGguf, Row6_ArraysTooDeepOrOfAnInvalidType) {  // ggml#26690
  const auto nested = [](int depth) {
    Bytes b;
    b.Head(0, 1).String("k").U32(9);
    for (int i = 0; i + 1 < depth; ++i) b.U32(9).U64(1);
    return b.U32(4).U64(1).U32(7);
  };
  EXPECT_EQ(Refusal(nested(limits::kMaxGgufArrayDepth)), "no error");
  EXPECT_THAT(Refusal(nested(limits::kMaxGgufArrayDepth + 1)), HasSubstr("key 'k': arrays nested"));
  EXPECT_THAT(Refusal(nested(10'000)), HasSubstr("nested"));
  for (const uint32_t type : {13u, 99u, 0xFFFFFFFFu}) {
    EXPECT_THAT(Refusal(Bytes().Head(0, 1).String("k").U32(9).U32(type).U64(1).Zeros(64)),
                HasSubstr("invalid element type " + std::to_string(type)));
    EXPECT_THAT(Refusal(Bytes().Head(0, 1).String("k").U32(type).Zeros(64)),
                HasSubstr("invalid value type " + std::to_string(type)));
  }
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).String("flag").U32(7).Put<uint8_t>(2)), HasSubstr("a bool is 2"));
}

TEST(BadGguf, Row6_ScoresAsBytesAreNoFloats) {
  Bytes b;
  b.Head(0, 1).String("tokenizer.ggml.scores").U32(9).U32(1).U64(2).Put<int8_t>(1).Put<int8_t>(2);
  const GgufMetadata metadata("x.gguf", ParseGguf(b.span(), "x.gguf").metadata);
  EXPECT_THAT(ErrorOf([&] { metadata.Floats("tokenizer.ggml.scores"); }),
              HasSubstr("x.gguf: key 'tokenizer.ggml.scores' is not an array of floats"));
}

TEST(BadGguf, Row7_DimensionsZeroNegativeOrOverflowing) {  // CVE-2026-33298, ggml#1517, llama.cpp#26946
  EXPECT_EQ(Refusal(OneTensor({4, 2}, 0, 0, 32)), "no error");
  const auto tensor_named = [](const std::string& cause) {
    return AllOf(HasSubstr("'blk.0.w'"), HasSubstr(cause));
  };
  EXPECT_THAT(Refusal(OneTensor({0}, 0, 0, 64)), tensor_named("dimension 0"));
  EXPECT_THAT(Refusal(OneTensor({4, 0}, 0, 0, 64)), tensor_named("dimension 0"));
  EXPECT_THAT(Refusal(OneTensor({4, UINT64_MAX}, 0, 0, 64)), tensor_named("dimension -1"));
  EXPECT_THAT(Refusal(OneTensor({uint64_t{1} << 63}, 0, 0, 64)),
              tensor_named("dimension -9223372036854775808"));
  const uint64_t k32 = uint64_t{1} << 32;
  EXPECT_THAT(Refusal(OneTensor({k32, k32}, 0, 0, 64)), tensor_named("overflows"));  // 2^64: 0
  EXPECT_THAT(Refusal(OneTensor({k32, k32, 1, 4}, 0, 0, 64)), tensor_named("overflows"));
  EXPECT_THAT(Refusal(OneTensor({4, k32, k32, 1}, 0, 0, 64)), tensor_named("overflows"));
  EXPECT_THAT(Refusal(OneTensor({uint64_t{1} << 62}, 0, 0, 64)), tensor_named("overflows"));  // bytes: 2^64
  EXPECT_THAT(Refusal(OneTensor({k32, k32 >> 3}, 0, 0, 64)), tensor_named("overflows"));      // bytes: 2^63
  EXPECT_THAT(Refusal(OneTensor({uint64_t{1} << 60}, 0, 0, 64)), tensor_named("past the end"));
  EXPECT_THAT(Refusal(OneTensor({}, 0, 0, 64)), tensor_named("0 dimensions"));
  EXPECT_THAT(Refusal(OneTensor({1, 1, 1, 1, 1}, 0, 0, 64)), tensor_named("5 dimensions"));
  Bytes many;
  many.Head(1, 0).String("blk.0.w").U32(0xFFFFFFFF).Zeros(64);
  EXPECT_THAT(Refusal(many), tensor_named("4294967295 dimensions"));
}

TEST(BadGguf, Row8_TensorsOutsideTheFileOverlappingOrUnaligned) {  // CVE-2026-7482
  EXPECT_EQ(Refusal(OneTensor({8}, 0, 32, 64)), "no error");
  EXPECT_THAT(Refusal(OneTensor({8}, 0, 32, 63)), HasSubstr("past the end"));
  EXPECT_THAT(Refusal(OneTensor({8}, 0, 64, 64)), HasSubstr("past the end"));
  EXPECT_THAT(Refusal(OneTensor({8}, 0, 1 << 20, 64)), HasSubstr("past the end"));
  EXPECT_THAT(Refusal(OneTensor({8}, 0, UINT64_MAX - 31, 64)),
              HasSubstr("past the end"));  // offset + size overflows
  EXPECT_THAT(Refusal(OneTensor({8}, 0, 4, 64)), AllOf(HasSubstr("'blk.0.w'"), HasSubstr("alignment 32")));
  const auto two = [](uint64_t first, uint64_t second) {
    Bytes b;
    b.Head(2, 0).Tensor("a", {16}, 0, first).Tensor("b", {16}, 0, second);
    return b.PadTo(32).Zeros(256);
  };
  EXPECT_EQ(Refusal(two(0, 64)), "no error");
  EXPECT_EQ(Refusal(two(64, 0)), "no error");
  EXPECT_THAT(Refusal(two(0, 0)), HasSubstr("overlap"));
  EXPECT_THAT(Refusal(two(0, 32)), HasSubstr("'a' and 'b' overlap at offset 32"));
  EXPECT_THAT(Refusal(two(32, 0)), HasSubstr("'b' and 'a' overlap at offset 32"));
}

TEST(BadGguf, Row8_TensorNames) {
  const auto named = [](std::string_view name) {
    return Bytes().Head(1, 0).Tensor(name, {8}, 0, 0).PadTo(32).Zeros(32);
  };
  EXPECT_EQ(Refusal(named(std::string(64, 'n'))), "no error");
  EXPECT_THAT(Refusal(named(std::string(65, 'n'))), HasSubstr("65 bytes"));
  EXPECT_THAT(Refusal(named("")), HasSubstr("without a name"));
  EXPECT_THAT(Refusal(named("\xff")), HasSubstr("not UTF-8"));
  Bytes twice;
  twice.Head(2, 0).Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).PadTo(32).Zeros(64);
  EXPECT_THAT(Refusal(twice), HasSubstr("duplicate tensor 'a'"));
}

TEST(BadGguf, Row9_Alignment) {  // llama.cpp#26318
  const auto aligned = [](uint32_t alignment) {
    return Bytes().Head(0, 1).KeyU32("general.alignment", alignment);
  };
  for (const uint32_t good : {8u, 32u, 64u, 4096u, 1u << 20}) EXPECT_EQ(Refusal(aligned(good)), "no error");
  for (const uint32_t bad : {0u, 1u, 3u, 4u, 24u, 33u, 1u << 21, 1u << 30, 0xFFFFFFFFu}) {
    EXPECT_THAT(Refusal(aligned(bad)), HasSubstr("general.alignment is " + std::to_string(bad)));
  }
  const std::string key = "general.alignment";
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).String(key).U32(10).U64(32)), HasSubstr("has type 10"));
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).String(key).U32(5).U32(32)), HasSubstr("has type 5"));
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).String(key).U32(8).String("32")), HasSubstr("has type 8"));
  EXPECT_THAT(Refusal(Bytes().Head(0, 1).String(key).U32(9).U32(4).U64(1).U32(32)), HasSubstr("has type 9"));
}

TEST(BadGguf, Row11_PartialBlocksAndUnknownTypes) {
  struct Type {
    uint32_t number;
    uint64_t block, bytes;
  };
  const Type supported[] = {{0, 1, 4},      {1, 1, 2},      {30, 1, 2},     {2, 32, 18},   {3, 32, 20},
                            {6, 32, 22},    {7, 32, 24},    {8, 32, 34},    {10, 256, 84}, {11, 256, 110},
                            {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {20, 32, 18},  {23, 256, 136},
                            {39, 32, 17},   {16, 256, 66},  {17, 256, 74},  {18, 256, 98}, {21, 256, 110},
                            {22, 256, 82}};
  for (const Type& type : supported) {
    const auto exact = static_cast<size_t>(3 * type.bytes);
    EXPECT_EQ(Refusal(OneTensor({type.block, 3}, type.number, 0, exact)), "no error") << type.number;
    EXPECT_THAT(Refusal(OneTensor({type.block, 3}, type.number, 0, exact - 1)), HasSubstr("past the end"));
    if (type.block == 1) continue;
    // All rows together would be whole blocks, but each row alone is not.
    EXPECT_THAT(Refusal(OneTensor({type.block / 2, 4}, type.number, 0, 4096)),
                AllOf(HasSubstr("'blk.0.w'"), HasSubstr("not a multiple")));
    EXPECT_THAT(Refusal(OneTensor({type.block + 1}, type.number, 0, 4096)), HasSubstr("not a multiple"));
  }
  for (uint32_t number = 0; number < 200; ++number) {
    const bool known = std::ranges::any_of(supported, [&](const Type& t) { return t.number == number; });
    const std::string message = Refusal(OneTensor({256}, number, 0, 4096));
    if (known) {
      EXPECT_EQ(message, "no error");
    } else {
      EXPECT_THAT(message,
                  AllOf(HasSubstr("tensor 'blk.0.w' has the un"), HasSubstr(std::to_string(number))));
    }
  }
  EXPECT_THAT(Refusal(OneTensor({256}, 4, 0, 4096)), HasSubstr("unsupported type 4 (Q4_2, removed"));
  EXPECT_THAT(Refusal(OneTensor({256}, 31, 0, 4096)), HasSubstr("unsupported type 31"));
  // The name, and what can be done.
  EXPECT_THAT(
      Refusal(OneTensor({256}, 19, 0, 4096)),
      AllOf(HasSubstr("unsupported type 19 (IQ1_S); take a file of F32, F16, Q4_0"), HasSubstr("IQ3_S")));
  EXPECT_THAT(Refusal(OneTensor({256}, 40, 0, 4096)), HasSubstr("unsupported type 40 (NVFP4)"));
  EXPECT_THAT(Refusal(OneTensor({256}, 99, 0, 4096)), HasSubstr("unknown type 99"));
  EXPECT_THAT(Refusal(OneTensor({256}, 0xFFFFFFFF, 0, 4096)), HasSubstr("unknown type 4294967295"));
}

// Small elements are widened in memory, so a file with 70 MB of them would take half a GB.
TEST(BadGguf, ArraysOfOneFileTogetherAreLimited) {
  const uint64_t count = 4 * static_cast<uint64_t>(limits::kMaxVocab) + 1;
  Bytes b;
  b.Head(0, 1).String("k").U32(9).U32(1).U64(count).Zeros(count);
  EXPECT_THAT(Refusal(b), HasSubstr("array elements in one file"));
}

}  // namespace
}  // namespace coppice
