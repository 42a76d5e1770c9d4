// UTF-8, the Unicode properties that pre-tokenizers need, and NFC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// General categories, in the order of tools/gen_unicode_ranges.py.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn
};

Category CategoryOf(uint32_t code_point);

// The classes of a character that scanners test, as a bit set. Tekken's two letter classes share Lm, Lo and
// M.
enum CharClass : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // \s: the White_Space property
  kMark = 8,          // \p{M}
  kUpperLike = 16,    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 32,    // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPunctuation = 64,  // \p{P} and ASCII punctuation
  kWordOther = 128,   // \w besides L and M: Nd, Nl, Pc, join controls, circled letters
};

struct Char {
  uint32_t code = 0;
  uint32_t size = 0;  // bytes; 0 at the end of the text
  uint8_t classes = 0;
  bool Is(int mask) const { return (classes & mask) != 0; }
};

inline constexpr uint32_t kInvalidByte = 0xFFFFFFFFu;

// The character at `position`. A byte that is not valid UTF-8 (including overlong forms and surrogates) is a
// character of its own: code kInvalidByte, size 1, no classes.
Char CharAt(std::string_view text, size_t position);

// CharAt without the classes.
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
