#include "eval/metrics/python_text.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace coppice {

namespace {

bool IsArticle(std::u32string_view word) { return word == U"a" || word == U"an" || word == U"the"; }

}  // namespace

std::u32string ToCodePoints(std::string_view utf8) {
  std::u32string text;
  for (size_t at = 0; at < utf8.size();) {
    const Char c = DecodeUtf8(utf8, at);
    text.push_back(c.code == kInvalidByte ? U'\uFFFD' : static_cast<char32_t>(c.code));
    at += c.size;
  }
  return text;
}

std::string ToUtf8(std::u32string_view text) {
  std::string utf8;
  for (const char32_t c : text) AppendUtf8(c, utf8);
  return utf8;
}

std::u32string Lower(std::u32string_view text) {
  std::u32string lower;
  for (const char32_t c : text) {
    lower.push_back(c == U'\u0130' ? U'i' : LowerOf(c));
    if (c == U'\u0130') lower.push_back(U'\u0307');  // the only one that becomes two
  }
  return lower;
}

std::string LowerUtf8(std::string_view utf8) { return ToUtf8(Lower(ToCodePoints(utf8))); }

bool IsPythonSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1c && c <= 0x1f); }

bool IsPythonWord(char32_t c) { return IsLetter(c) || IsNumber(c) || c == U'_'; }

bool IsPythonDigit(char32_t c) { return IsDecimal(c); }

bool IsAsciiPunctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) ||
         (c >= 0x7b && c <= 0x7e);
}

std::vector<std::u32string> SplitWords(std::u32string_view text) {
  std::vector<std::u32string> words;
  std::u32string word;
  for (const char32_t c : text) {
    if (!IsPythonSpace(c)) {
      word.push_back(c);
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<std::u32string> SplitAt(std::u32string_view text, char32_t separator) {
  std::vector<std::u32string> parts(1);
  for (const char32_t c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

std::vector<std::u32string> FindNumbers(std::u32string_view text) {
  std::vector<std::u32string> numbers;
  bool inside = false;
  for (const char32_t c : text) {
    const bool digit = IsPythonDigit(c);
    if (digit && !inside) numbers.emplace_back();
    if (digit) numbers.back().push_back(c);
    inside = digit;
  }
  return numbers;
}

std::u32string Strip(std::u32string_view text) {
  while (!text.empty() && IsPythonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsPythonSpace(text.back())) text.remove_suffix(1);
  return std::u32string(text);
}

std::u32string WithoutAsciiPunctuation(std::u32string_view text) {
  std::u32string kept;
  for (const char32_t c : text) {
    if (!IsAsciiPunctuation(c)) kept.push_back(c);
  }
  return kept;
}

std::u32string WithoutArticles(std::u32string_view text) {
  std::u32string spaced;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsPythonWord(text[end])) ++end;
    if (end == at) {
      spaced.push_back(text[at++]);
      continue;
    }
    const std::u32string_view word = text.substr(at, end - at);
    spaced += IsArticle(word) ? std::u32string_view(U" ") : word;
    at = end;
  }
  std::u32string joined;
  for (const std::u32string& word : SplitWords(spaced)) {
    if (!joined.empty()) joined.push_back(U' ');
    joined += word;
  }
  return joined;
}

}  // namespace coppice
