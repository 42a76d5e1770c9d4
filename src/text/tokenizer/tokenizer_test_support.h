// Helpers for the tokenizer tests: the location of the shared data, and small tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "test_files.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice::test {

using ::coppice::ErrorOf;
using ::coppice::SharedPath;
using ::coppice::TempFolder;

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::unique_ptr<Tokenizer> LoadGguf(const std::string& path) {
  return Tokenizer::FromGguf(GgufFile::Open(path)->metadata());
}

// Builds GGUF metadata from small lists.
class MetadataBuilder {
 public:
  template <typename T>
  MetadataBuilder& Array(const std::string& key, std::vector<T> items) {
    GgufArray array;
    array.items = std::move(items);
    if (std::holds_alternative<std::vector<std::string>>(array.items)) array.type = 8;
    if (std::holds_alternative<std::vector<double>>(array.items)) array.type = 6;
    if (std::holds_alternative<std::vector<int64_t>>(array.items)) array.type = 5;
    values_[key] = std::make_shared<const GgufArray>(std::move(array));
    return *this;
  }
  MetadataBuilder& Set(const std::string& key, GgufValue value) {
    values_[key] = std::move(value);
    return *this;
  }
  MetadataBuilder& Remove(const std::string& key) {
    values_.erase(key);
    return *this;
  }
  GgufMetadata Build() const { return GgufMetadata("test.gguf", values_); }
  std::unique_ptr<Tokenizer> Load() const { return Tokenizer::FromGguf(Build()); }

 private:
  std::map<std::string, GgufValue, std::less<>> values_;
};

using Strings = std::vector<std::string>;
using Ids = std::vector<int32_t>;

// <unk> <s> </s>, 256 byte tokens, and a few merges of a and Z with falling scores.
inline MetadataBuilder SmallSpm() {
  Strings tokens{"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types{2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    tokens.emplace_back(name);
    types.push_back(6);
  }
  for (const char* text :
       {"\xE2\x96\x81", "a", "Z", "AA", "A", "AAAA", "aa", "ZZ", "ZZZZ", "ZZZZZZZZ", "\n\n", "\n"}) {
    tokens.emplace_back(text);
    types.push_back(1);
  }
  std::vector<double> scores(tokens.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<double>(i);
  MetadataBuilder builder;
  builder.Set("tokenizer.ggml.model", std::string("llama")).Array("tokenizer.ggml.tokens", std::move(tokens));
  builder.Array("tokenizer.ggml.token_type", std::move(types))
      .Array("tokenizer.ggml.scores", std::move(scores));
  return builder;
}

// A few letters and merges; the full byte-level alphabet is not needed.
inline MetadataBuilder SmallBpe() {
  MetadataBuilder builder;
  builder.Set("tokenizer.ggml.model", std::string("gpt2")).Set("tokenizer.ggml.pre", std::string("gpt-2"));
  builder.Array("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "abab", "<|end|>"});
  builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 1, 3});
  builder.Array("tokenizer.ggml.merges", Strings{"a b", "ab ab"});
  return builder;
}

}  // namespace coppice::test
