#include "text/unicode/unicode.h"

#include <utf8proc.h>

namespace coppice {
namespace {

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

uint8_t Byte(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

}  // namespace

bool IsLetter(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool IsNumber(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool IsDecimal(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_ND; }

bool IsWhiteSpace(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  return (code >= 9 && code <= 13) || code == 0x85 ||
         (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP);
}

bool IsPunctuation(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  const bool ascii_symbol = code < 128 && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO;
  return ascii_symbol || (c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO);
}

// UTS 18: \w is Alphabetic, M, Nd, Pc and Join_Control. The only Alphabetic code points that are neither
// letters nor marks nor Nl are circled and squared letters.
bool IsWordPart(char32_t code) {
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                       (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  const utf8proc_category_t c = CategoryOf(code);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
         code == 0x200C || code == 0x200D || circled;
}

bool IsPrintable(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  return code == ' ' || (c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS);
}

bool IsControl(char32_t code) {
  const utf8proc_category_t c = CategoryOf(code);
  return c >= UTF8PROC_CATEGORY_CC && c <= UTF8PROC_CATEGORY_CO;
}

size_t GraphemeSize(std::string_view text, size_t position) {
  Char c = DecodeUtf8(text, position);
  size_t size = c.size;
  utf8proc_int32_t state = 0;
  while (c.code != kInvalidByte && position + size < text.size()) {
    const Char next = DecodeUtf8(text, position + size);
    if (next.code == kInvalidByte ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state))
      break;
    size += next.size;
    c = next;
  }
  return size;
}

char32_t UpperOf(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t LowerOf(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}
char32_t TitleOf(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
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
  if (lead < 0x80) return {lead, 1};
  const Char invalid{kInvalidByte, 1};
  if (lead < 0xC2 || lead > 0xF4) return invalid;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const Utf8Prefix prefix = MeasureUtf8(text.substr(position, length));
  if (!prefix.complete || prefix.size != length) return invalid;
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (Byte(text, position + i) & 0x3Fu);
  return {code, static_cast<uint32_t>(length)};
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
