// Tokens that are matched in the text before anything else: control tokens in written form, and user-defined
// tokens.
#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // as written in the searched text
  bool special = false;      // matched only if EncodeOptions::parse_special is true
  bool lstrip = false;       // absorbs the white space to its left
  bool rstrip = false;       // absorbs the white space to its right
  bool single_word = false;  // matches only where no word character is adjacent
};

// A range of text between added tokens, or an added token.
struct Fragment {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;  // -1 for text
};

class AddedTokenMatcher {
 public:
  // `source` names the file in messages. Throws Error for more than limits::kMaxAddedTokens tokens, and for
  // an empty or very long content.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::string& source);
  AddedTokenMatcher() = default;

  bool empty() const { return tokens_.empty(); }
  // The leftmost, longest matches from left to right, like Hugging Face's tokenizers. O(text) steps, each
  // limited by the longest token.
  // A special token that holds a byte at one of the offsets `plain` (ascending) is none.
  std::vector<Fragment> Split(std::string_view text, bool parse_special,
                              std::span<const size_t> plain = {}) const;
  // Appends the offsets at which a special token begins, or may begin if more follows:
  // Tokenizer::ControlStarts.
  void AddSpecialStarts(std::string_view text, std::vector<size_t>& starts) const;

 private:
  // The longest permitted token at `position`, or null. Special tokens are permitted if they end at
  // `special_end` or before.
  const AddedToken* LongestAt(std::string_view text, size_t position, size_t special_end) const;

  std::vector<AddedToken> tokens_;
  boost::unordered_flat_map<uint64_t, uint32_t> children_;  // trie edges: node << 8 | byte -> node
  std::vector<int32_t> accepts_;                            // per node: index in tokens_, or -1
  std::array<bool, 256> starts_{};
};

}  // namespace coppice
