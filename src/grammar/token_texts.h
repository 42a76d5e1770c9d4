// The bytes of every token of a vocabulary, in the order of the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  // The bytes of a token; empty for control tokens and ids outside the vocabulary.
  std::string_view operator[](int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  bool EndsGeneration(int32_t id) const { return ends_[static_cast<size_t>(id)] != 0; }

  struct Entry {
    int32_t id = 0;
    uint32_t common = 0;  // bytes at the front that the entry before has too
  };
  // Tokens with a text, ascending by it.
  const std::vector<Entry>& sorted() const { return sorted_; }

 private:
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // [size + 1], in bytes_
  std::vector<uint8_t> ends_;
  std::vector<Entry> sorted_;
};

}  // namespace coppice
