// Tokens that are found in the text before anything else: control tokens written out, user-defined ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/flat_map.h"

namespace coppice {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // as it stands in the text that is searched
  bool special = false;      // skipped where EncodeOptions::parse_special is false
  bool lstrip = false;       // takes the white space to its left with it
  bool rstrip = false;       // ... to its right
  bool single_word = false;  // only where no word character touches it
};

// A stretch of text between added tokens, or one of them.
struct Fragment {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;  // -1 for text
};

class AddedTokenMatcher {
 public:
  // `source` names the file in messages. Throws Error for more than limits::kMaxAddedTokens, an empty or a
  // very long content.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::string& source);
  AddedTokenMatcher() = default;

  bool empty() const { return tokens_.empty(); }
  // Leftmost, longest matches from left to right, as Hugging Face's tokenizers finds them. O(text) steps,
  // each bounded by the longest token.
  std::vector<Fragment> Split(std::string_view text, bool parse_special) const;

 private:
  // The longest eligible token at `position`, or null.
  const AddedToken* LongestAt(std::string_view text, size_t position, bool parse_special) const;

  std::vector<AddedToken> tokens_;
  FlatMap<uint32_t> children_;    // trie edges: node << 8 | byte -> node
  std::vector<int32_t> accepts_;  // per node: index in tokens_, or -1
  std::array<bool, 256> starts_{};
};

}  // namespace coppice
