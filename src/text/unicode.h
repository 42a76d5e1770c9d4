// UTF-8 and the few Unicode properties that pre-tokenizers ask for, and NFC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// General categories; tools/gen_unicode_ranges.py writes them in this order.
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

// What a scanner asks of a character, as a set of bits. Tekken's two letter classes overlap in Lm, Lo and M.
enum CharClass : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // \s: the White_Space property
  kMark = 8,          // \p{M}
  kUpperLike = 16,    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 32,    // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPunctuation = 64,  // \p{P} and ASCII punctuation
  kWordOther = 128,   // what \w has besides L and M: Nd, Nl, Pc, join controls, circled letters
};

struct Char {
  uint32_t code = 0;
  uint32_t size = 0;  // bytes; 0 at the end of the text
  uint8_t classes = 0;
  bool Is(int mask) const { return (classes & mask) != 0; }
};

inline constexpr uint32_t kInvalidByte = 0xFFFFFFFFu;

// The character at `position`. A byte that is not valid UTF-8 there (overlong forms and surrogates included)
// is a character of its own: code kInvalidByte, size 1, no classes.
Char CharAt(std::string_view text, size_t position);

// As CharAt, without classes.
Char DecodeUtf8(std::string_view text, size_t position);

// How many bytes of a valid or truncated-at-the-end character stand at the start of `text` (at least 1), and
// whether it is complete. {n, false} with n == text.size() means that more bytes could complete it.
struct Utf8Prefix {
  size_t size;
  bool complete;
};
Utf8Prefix MeasureUtf8(std::string_view text);

// `code_point` <= 0x10FFFF.
void AppendUtf8(uint32_t code_point, std::string& out);

// Normalization Form C (https://unicode.org/reports/tr15/), in O(n log n). Bytes that are not UTF-8 stay.
std::string NormalizeNfc(std::string_view text);

}  // namespace coppice
