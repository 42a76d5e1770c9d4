// Valid files with bytes changed, truncated or repeated, in a fixed pseudo-random order. Each must load or be
// rejected; the sanitizers check memory accesses.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "formats/gguf_parse.h"
#include "formats/json.h"
#include "formats/quants.h"
#include "formats/safetensors.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

// Makes one to four changes. Small and extreme numbers are more frequent than at random, because readers fail
// on lengths, counts and types.
std::string Mutate(const std::string& original, std::mt19937& random) {
  std::string text = original;
  for (auto changes = random() % 4 + 1; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      case 2:
        text[at] = static_cast<char>(random() % 14);
        break;
      case 3:
        std::fill_n(text.begin() + at, std::min<size_t>(8, text.size() - at),
                    random() % 2 != 0 ? '\xff' : '\0');
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 16));
        break;
    }
  }
  return text;
}

// Reads every value, to detect a view that leaves the file.
void ReadAll(const std::vector<StoredTensor>& tensors) {
  for (const StoredTensor& tensor : tensors) {
    std::vector<float> row(static_cast<size_t>(tensor.view.cols));
    for (int64_t i = 0; i < tensor.view.rows; ++i)
      DequantizeRow(tensor.view.dtype, tensor.view.RowBytes(i), row);
  }
}

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
               [](std::span<const std::byte> bytes) { ReadAll(ParseGguf(bytes, "x.gguf").tensors); });
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
    ReadAll(ParseSafetensors(bytes, "x.safetensors").tensors);
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
