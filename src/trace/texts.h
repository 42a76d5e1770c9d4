// Texts of tokens: their bytes are cut anywhere, and need not be UTF-8 at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// With U+FFFD for every byte that belongs to no character.
std::string ReplaceInvalidUtf8(std::string_view text);

// Each character of the joined pieces stands with the piece that has its first byte, so that "caf\xc3", "\xa9!"
// becomes "caf\u00e9", "!". What is no character becomes U+FFFD.
std::vector<std::string> TextsOfPieces(const std::vector<std::string>& pieces);

}  // namespace coppice
