// Table look-ups and UTF-8. The classes of all code points are expanded once into 1.1 MB, because the
// scanners need them once or twice per character of a prompt.
#include "text/unicode/unicode.h"

#include <algorithm>
#include <vector>

#include "text/unicode/unicode_data.h"

namespace coppice {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

bool IsWhiteSpace(uint32_t cp, Category category) {
  return (cp >= 9 && cp <= 13) || cp == 0x85 || (category >= Category::kZs && category <= Category::kZp);
}

// UTS 18: \w is Alphabetic, M, Nd, Pc and Join_Control. The only Alphabetic code points that are neither
// letters nor marks nor Nl are circled and squared letters.
bool IsOtherWord(uint32_t cp, Category c) {
  const bool circled = (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
                       (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
  return c == Category::kNd || c == Category::kNl || c == Category::kPc || cp == 0x200C || cp == 0x200D ||
         circled;
}

uint8_t ClassesOf(uint32_t cp, Category c) {
  int bits = 0;
  const bool mark = c >= Category::kMn && c <= Category::kMe;
  const bool caseless = c == Category::kLm || c == Category::kLo || mark;
  if (c <= Category::kLo) bits |= kLetter;
  if (mark) bits |= kMark;
  if (c >= Category::kNd && c <= Category::kNo) bits |= kNumber;
  if (IsWhiteSpace(cp, c)) bits |= kSpace;
  if (caseless || c == Category::kLu || c == Category::kLt) bits |= kUpperLike;
  if (caseless || c == Category::kLl) bits |= kLowerLike;
  const bool ascii_symbol = cp < 128 && c >= Category::kSm && c <= Category::kSo;
  if ((c >= Category::kPc && c <= Category::kPo) || ascii_symbol) bits |= kPunctuation;
  if (IsOtherWord(cp, c)) bits |= kWordOther;
  return static_cast<uint8_t>(bits);
}

std::vector<uint8_t> ExpandClasses() {
  std::vector<uint8_t> table(kCodePoints);
  for (size_t run = 0; run < kCategoryRunsSize; ++run) {
    const uint32_t end = run + 1 < kCategoryRunsSize ? kCategoryRuns[run + 1] >> 5 : kCodePoints;
    const auto category = static_cast<Category>(kCategoryRuns[run] & 31);
    for (uint32_t cp = kCategoryRuns[run] >> 5; cp < end; ++cp) table[cp] = ClassesOf(cp, category);
  }
  return table;
}

const uint8_t* ClassTable() {
  static const std::vector<uint8_t> table = ExpandClasses();
  return table.data();
}

uint8_t Byte(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

}  // namespace

Category CategoryOf(uint32_t code_point) {
  const uint32_t* end = kCategoryRuns + kCategoryRunsSize;
  const uint32_t* run = std::upper_bound(kCategoryRuns, end, code_point << 5 | 31u);
  return static_cast<Category>(run[-1] & 31);
}

// Table 3-7 of the Unicode standard: only the range of the second byte depends on the first.
Utf8Prefix MeasureUtf8(std::string_view text) {
  const uint8_t lead = Byte(text, 0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, true};  // a single invalid byte; DecodeUtf8 distinguishes it
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {text.size(), false};
    if (Byte(text, i) < low || Byte(text, i) > high) return {i, true};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

Char DecodeUtf8(std::string_view text, size_t position) {
  if (position >= text.size()) return {};
  const uint8_t lead = Byte(text, position);
  if (lead < 0x80) return {lead, 1, 0};
  const Char invalid{kInvalidByte, 1, 0};
  if (lead < 0xC2 || lead > 0xF4) return invalid;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const Utf8Prefix prefix = MeasureUtf8(text.substr(position, length));
  if (!prefix.complete || prefix.size != length) return invalid;
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (Byte(text, position + i) & 0x3Fu);
  return {code, static_cast<uint32_t>(length), 0};
}

Char CharAt(std::string_view text, size_t position) {
  Char c = DecodeUtf8(text, position);
  if (c.size != 0 && c.code != kInvalidByte) c.classes = ClassTable()[c.code];
  return c;
}

void AppendUtf8(uint32_t cp, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xC0 | cp >> 6);
    put(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    put(0xE0 | cp >> 12);
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  } else {
    put(0xF0 | cp >> 18);
    put(0x80 | (cp >> 12 & 0x3F));
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  }
}

}  // namespace coppice
