// Valid files with bytes changed, truncated or repeated, in a fixed pseudo-random order. Each must load or be
// rejected; the sanitizers check memory accesses.
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf_parse.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/test_bytes.h"
#include "mutate.h"

namespace coppice {
namespace {

// Counts files that load and files that are rejected. Both must occur, or the test would show nothing.
template <typename Parse>
void RunMutations(const std::string& original, int rounds, Parse parse) {
  std::mt19937 random(20240229);
  int loaded = 0, refused = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = Mutate(original, random);
    // On the heap with the exact size, so that the sanitizer detects a read beyond the end.
    const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(text.data()),
                                       reinterpret_cast<const std::byte*>(text.data()) + text.size());
    try {
      parse(std::span<const std::byte>(bytes));
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(loaded, rounds / 50);
  EXPECT_GT(refused, rounds / 4);
}

TEST(Mutation, Gguf) {
  Bytes file;
  file.Head(3, 6).KeyU32("general.alignment", 32).String("general.architecture").U32(8).String("llama");
  file.String("tokenizer.ggml.tokens").U32(9).U32(8).U64(3).String("<s>").String("a").String("");
  file.String("tokenizer.ggml.scores").U32(9).U32(6).U64(3).Put(0.f).Put(-1.f).Put(-2.f);
  file.String("nested").U32(9).U32(9).U64(2).U32(0).U64(1).Put<uint8_t>(9).U32(7).U64(1).Put<uint8_t>(1);
  file.String("big").U32(10).U64(1234567);
  file.Tensor("norm", {8}, 0, 0).Tensor("q8", {32, 2}, 8, 32).Tensor("q4k", {256}, 12, 128).PadTo(32);
  file.Zeros(32 + 96 + 144);
  RunMutations(file.text(), 6000,
               [](std::span<const std::byte> bytes) { ReadAllValues(ParseGguf(bytes, "x.gguf").tensors); });
}

TEST(Mutation, Safetensors) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"m":{"dtype":"U8","shape":[8],)"
      R"("data_offsets":[32,40]}})";
  // Twice as much data as header, so that some changes hit the data and the file still loads.
  std::string wide = header;
  wide.replace(wide.find("[8]"), 3, "[400]");
  wide.replace(wide.find("[32,40]"), 7, "[32,432]");
  RunMutations(Bytes().String(wide).Zeros(432).text(), 6000, [](std::span<const std::byte> bytes) {
    ReadAllValues(ParseSafetensors(bytes, "x.safetensors").tensors);
  });
}

TEST(Mutation, Json) {
  const std::string text =
      R"({"hidden_size": 64, "rope": {"type": "yarn", "f": [1.5, -2e3, null, true]}, "s": "aé\n"})";
  RunMutations(text, 6000, [](std::span<const std::byte> bytes) {
    ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "x.json");
  });
}

}  // namespace
}  // namespace coppice
