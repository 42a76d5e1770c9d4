// Texts of tokens, whose bytes may begin or end within a character, or be no UTF-8 at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// Replaces every byte that belongs to no character by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// Moves each character of the joined pieces to the piece that has its first byte, so that "caf\xc3", "\xa9!"
// becomes "caf\u00e9", "!". A byte that belongs to no character becomes U+FFFD.
std::vector<std::string> TextsOfPieces(const std::vector<std::string>& pieces);

}  // namespace coppice
