// SentencePiece's "precompiled charsmap": which characters a normaliser replaces (NFKC and more), as a double
// array trie and the texts that its values point to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

class Charsmap {
 public:
  Charsmap() = default;  // replaces nothing
  // Throws Error, naming `source`, for a table that is cut off or whose trie leaves it.
  Charsmap(std::string_view table, const std::string& source);

  // The text that replaces the beginning of `characters`: of its shortest prefix in the trie, as in Hugging
  // Face's tokenizers. Nothing if it has no prefix there.
  std::optional<std::string_view> Replacement(std::string_view characters) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

// Bytes from base64; throws Error, naming `source`.
std::string FromBase64(std::string_view text, const std::string& source);

}  // namespace coppice
