// GPT-2's byte alphabet: the 188 printable Latin-1 characters map to themselves, the other bytes, in
// ascending order, to U+0100 and up (bytes_to_unicode in OpenAI's encoder.py).
#include "text/tokenizer/merger.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

bool IsPrintable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

std::array<int16_t, kAlphabetEnd> InverseAlphabet() {
  std::array<int16_t, kAlphabetEnd> inverse;
  inverse.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const Char c = DecodeUtf8(ByteLevelAlphabet()[static_cast<size_t>(byte)], 0);
    inverse[c.code] = static_cast<int16_t>(byte);
  }
  return inverse;
}

}  // namespace

const std::array<std::string, 256>& ByteLevelAlphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> made;
    uint32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      AppendUtf8(IsPrintable(byte) ? static_cast<uint32_t>(byte) : next++, made[static_cast<size_t>(byte)]);
    }
    return made;
  }();
  return alphabet;
}

std::string FromByteLevel(std::string_view text) {
  static const std::array<int16_t, kAlphabetEnd> inverse = InverseAlphabet();
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    if (c.code >= kAlphabetEnd || inverse[c.code] < 0) return std::string(text);
    bytes.push_back(static_cast<char>(inverse[c.code]));
    at += c.size;
  }
  return bytes;
}

}  // namespace coppice
