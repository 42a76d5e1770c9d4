// Shared by the tokenizers of encoders, WordPiece and Unigram.
#pragma once

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace coppice {

// A word as the vocabulary spells it, and the bytes of the text that each of its bytes stands for.
struct EncoderWord {
  std::string text = {};
  std::vector<size_t> begins = {};
  std::vector<size_t> ends = {};

  void Append(std::string_view bytes, size_t begin, size_t end) {
    text += bytes;
    begins.resize(text.size(), begin);
    ends.resize(text.size(), end);
  }
};

// The ids of tokens by their texts, which must outlive it.
class EncoderIds {
 public:
  static constexpr int32_t kNone = -1;

  // Of equal texts the first one counts. Holes in a vocabulary are empty texts, which no word holds.
  void Add(std::string_view text, int32_t id) {
    if (text.empty()) return;
    ids_.emplace(text, id);
    longest_ = std::max(longest_, text.size());
  }
  int32_t Find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? kNone : found->second;
  }
  // Throws Error, naming `source`, if there is none.
  int32_t Need(std::string_view text, const std::string& source) const {
    const int32_t id = Find(text);
    if (id == kNone) throw Error("[tokenizer] {}: has no token {}", source, text);
    return id;
  }
  size_t longest() const { return longest_; }  // bytes, at least 1

 private:
  boost::unordered_flat_map<std::string_view, int32_t> ids_;
  size_t longest_ = 1;
};

}  // namespace coppice
