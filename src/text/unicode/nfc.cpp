// NFC (UAX #15) by the tables of libutf8proc. Its own function sorts marks in quadratic time: a text of a
// million of them would take minutes.
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

// utf8proc 2.8 takes U+11A7 for a trailing consonant of Hangul and drops it. It composes with nothing.
constexpr uint32_t kNoTrailingConsonant = 0x11A7;
constexpr int kLongest = 32;  // of a decomposition; Unicode's canonical ones have at most four code points

auto CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Between two starters, marks are in the order of their classes.
void OrderMarks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return CombiningClass(code) != 0; };
  for (auto first = codes.begin(); first != codes.end();) {
    first = std::find_if(first, codes.end(), is_mark);
    const auto last = std::find_if_not(first, codes.end(), is_mark);
    std::stable_sort(first, last, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    first = last;
  }
}

void NormalizeValid(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    utf8proc_int32_t decomposed[kLongest];
    int unused = 0;
    const utf8proc_ssize_t size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), decomposed,
                                                          kLongest, UTF8PROC_DECOMPOSE, &unused);
    COPPICE_CHECK(size >= 0 && size <= kLongest);
    codes.insert(codes.end(), decomposed, decomposed + size);
    at += c.size;
  }
  OrderMarks(codes);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  codes.resize(static_cast<size_t>(
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options)));
  for (const utf8proc_int32_t code : codes) AppendUtf8(static_cast<uint32_t>(code), out);
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  // The lead byte of U+0300 is 0xCC. Text without bytes from there on is in NFC already.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; })) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size());
  size_t valid_from = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    if (c.code == kInvalidByte || c.code == kNoTrailingConsonant) {
      NormalizeValid(text.substr(valid_from, at - valid_from), out);
      out.append(text.substr(at, c.size));
      valid_from = at + c.size;
    }
    at += c.size;
  }
  NormalizeValid(text.substr(valid_from), out);
  return out;
}

}  // namespace coppice
