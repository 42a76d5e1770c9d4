// UTF-8; properties, cases and NFC by the tables of libutf8proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// Properties of a code point; kInvalidByte has none of them.
bool IsLetter(char32_t code);       // \p{L}
bool IsNumber(char32_t code);       // \p{N}
bool IsDecimal(char32_t code);      // \p{Nd}
bool IsWhiteSpace(char32_t code);   // the White_Space property
bool IsPunctuation(char32_t code);  // \p{P} and ASCII punctuation
bool IsWordPart(char32_t code);   // \w of UTS 18: letters, marks, Nd, Nl, Pc, join controls, circled letters
bool IsPrintable(char32_t code);  // str.isprintable of Python
bool IsControl(char32_t code);    // Cc, Cf, Cs or Co: \p{C} without what is not assigned

// The mappings of one code point to one. Characters that become two, such as sharp s, need care of their own.
char32_t UpperOf(char32_t code);
char32_t LowerOf(char32_t code);
char32_t TitleOf(char32_t code);

struct Char {
  uint32_t code = 0;
  uint32_t size = 0;  // bytes; 0 at the end of the text
};

// The number of bytes, at least 1, of the grapheme cluster at `position` (UAX 29); a byte that is not UTF-8
// is one of its own.
size_t GraphemeSize(std::string_view text, size_t position);

inline constexpr uint32_t kInvalidByte = 0xFFFFFFFFu;

// The character at `position`. A byte that is not valid UTF-8 (including overlong forms and surrogates) is a
// character of its own: code kInvalidByte, size 1.
Char DecodeUtf8(std::string_view text, size_t position);

// The number of bytes (at least 1) of the valid or truncated character at the start of `text`, and whether it
// is complete. If it is not complete and size == text.size(), more bytes could complete it.
struct Utf8Prefix {
  size_t size;
  bool complete;
};
Utf8Prefix MeasureUtf8(std::string_view text);

// `code_point` must be at most 0x10FFFF.
void AppendUtf8(uint32_t code_point, std::string& out);

// Normalization Form C (https://unicode.org/reports/tr15/), O(n log n). Bytes that are not UTF-8 are kept.
std::string NormalizeNfc(std::string_view text);

}  // namespace coppice
