// Marks in a text that grows: what of its end may be the beginning of one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace coppice {

inline constexpr const char* kBlanks = " \t\r\n";

inline std::string_view WithoutBlanksAtEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
}

// Whether `whole` begins with `begin` and goes on behind it.
inline bool IsPartOf(std::string_view begin, std::string_view whole) {
  return begin.size() < whole.size() && whole.starts_with(begin);
}

// The length of the longest end of `text` that begins `mark` and is not all of it.
inline size_t BegunMark(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace coppice
