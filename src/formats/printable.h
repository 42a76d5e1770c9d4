// Makes names from files safe to print in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// `name` for a one-line message: control characters are replaced, and a long name is truncated.
inline std::string Printable(std::string_view name) {
  constexpr size_t kLongest = 100;
  std::string text(name.substr(0, kLongest));
  for (char& c : text) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (name.size() > kLongest) text += "...";
  return text;
}

}  // namespace coppice
