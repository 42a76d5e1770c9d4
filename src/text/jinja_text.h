// Strings as Python sees them: sequences of code points, kept as UTF-8.
//
// Every function is linear in its input. Bytes that are no UTF-8 pass through unchanged, one code point each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::jinja {

struct CodePoint {
  char32_t value = 0;  // an invalid byte b reads as U+DC00 + b, as Python's surrogateescape does
  size_t bytes = 1;
};
CodePoint DecodeAt(std::string_view text, size_t position);

size_t CountCodePoints(std::string_view text);
// Where each code point starts, and the end of the text as the last element.
std::vector<size_t> CodePointOffsets(std::string_view text);

// Where `part` first, or last, stands in `text`; npos where it does not. Linear, unlike std::string's own
// search, which takes |text| |part| steps on "aaaa...".
size_t FindFirst(std::string_view text, std::string_view part, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view part);

bool IsSpace(char32_t value);      // str.isspace
bool IsPrintable(char32_t value);  // str.isprintable, by blocks: unassigned code points count as printable
bool IsCased(char32_t value);
// Simple case mapping of the Latin, Greek, Cyrillic, Armenian and full-width letters.
char32_t UpperOf(char32_t value);
char32_t LowerOf(char32_t value);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string TitleCase(std::string_view text);  // str.title

// str.strip: which ends lose the code points in `set`; with an empty `set`, white space.
enum class Ends { kLeft, kRight, kBoth };
std::string_view Strip(std::string_view text, Ends ends, std::string_view set = {});

}  // namespace coppice::jinja
