// Makes names from files safe to print in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// UTF-8 without the characters that make a terminal act: C0, DEL, and C1 (U+0080 to U+009F, two bytes of
// UTF-8 each). `keep` holds those that stay.
inline std::string WithoutControls(std::string_view text, std::string_view keep = "") {
  std::string result(text);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<uint8_t>(result[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < result.size() && static_cast<uint8_t>(result[i + 1]) < 0xA0 &&
                       static_cast<uint8_t>(result[i + 1]) >= 0x80;
    if (is_c1) result.replace(i, 2, "?");
    if ((byte < 0x20 || byte == 0x7F) && keep.find(result[i]) == keep.npos) result[i] = '?';
  }
  return result;
}

// `name` for a one-line message: control characters are replaced, and a long name is truncated.
inline std::string Printable(std::string_view name, size_t longest = 100) {
  std::string text = WithoutControls(name.substr(0, longest));
  if (name.size() > longest) text += "...";
  return text;
}

}  // namespace coppice
