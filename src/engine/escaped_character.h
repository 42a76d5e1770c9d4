// Characters in the forms that a template's filters write.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// What a template makes of a character that it escapes: Python's repr, and tojson(ensure_ascii=true).
inline std::vector<std::string> Escaped(char32_t code) {
  const uint32_t rest = code - 0x10000;
  return {fmt::format("\\U{:08x}", static_cast<uint32_t>(code)),
          fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF))};
}

// Calls `use` with every character that `text` holds in one of these forms.
template <typename Use>
void ForEachEscaped(std::string_view text, const Use& use) {
  const auto number = [&](size_t at, size_t digits) -> uint32_t {
    uint32_t code = 0;
    if (at + digits > text.size()) return 0;
    const auto end = std::from_chars(text.data() + at, text.data() + at + digits, code, 16).ptr;
    return end == text.data() + at + digits ? code : 0;
  };
  for (size_t at = text.find('\\'); at != text.npos; at = text.find('\\', at + 1)) {
    if (text.substr(at).starts_with("\\U")) use(number(at + 2, 8));
    if (text.substr(at).starts_with("\\ud") && text.substr(at + 1).substr(0, 7).ends_with("\\u"))
      use(0x10000 + ((number(at + 2, 4) - 0xD800) << 10) + (number(at + 8, 4) - 0xDC00));
  }
}

}  // namespace coppice
