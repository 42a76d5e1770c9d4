// Python's view of strings, sequences of code points, on UTF-8.
//
// Every function is linear in its input. Bytes that are not UTF-8 pass through unchanged, each as one code
// point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::jinja {

struct CodePoint {
  char32_t value = 0;  // an invalid byte b reads as U+DC00 + b, like Python's surrogateescape
  size_t bytes = 1;
};
CodePoint DecodeAt(std::string_view text, size_t position);

size_t CountCodePoints(std::string_view text);
// The offset of each code point; the last element is the end of the text.
std::vector<size_t> CodePointOffsets(std::string_view text);

// The first, or last, offset of `part` in `text`; npos if there is none. Linear, unlike std::string's search,
// which takes |text| |part| steps on "aaaa...".
size_t FindFirst(std::string_view text, std::string_view part, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view part);

bool IsSpace(char32_t value);  // str.isspace
bool IsCased(char32_t value);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string TitleCase(std::string_view text);  // str.title

// str.strip: removes the code points in `set`, or white space if it is empty, from the given ends.
enum class Ends { kLeft, kRight, kBoth };
std::string_view Strip(std::string_view text, Ends ends, std::string_view set = {});

}  // namespace coppice::jinja
