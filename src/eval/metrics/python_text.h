// Text as Python's str sees it: the official metrics are Python programs, and their scores depend on what it
// calls a letter, a digit and white space. Works on code points; bytes that are not UTF-8 become U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

std::u32string ToCodePoints(std::string_view utf8);
std::string ToUtf8(std::u32string_view text);

// str.lower(), but for the sigma at a word's end, which stays the common one.
std::u32string Lower(std::u32string_view text);
std::string LowerUtf8(std::string_view utf8);

bool IsPythonSpace(char32_t c);  // str.isspace()
bool IsPythonWord(char32_t c);   // \w of re
bool IsPythonDigit(char32_t c);  // \d of re: any script's decimal digits
bool IsAsciiPunctuation(char32_t c);

std::vector<std::u32string> SplitWords(std::u32string_view text);                   // str.split()
std::vector<std::u32string> SplitAt(std::u32string_view text, char32_t separator);  // str.split(separator)
std::vector<std::u32string> FindNumbers(std::u32string_view text);  // re.findall(r"\d+", text)
std::u32string Strip(std::u32string_view text);                     // str.strip()
std::u32string WithoutAsciiPunctuation(std::u32string_view text);
// re.sub(r"\b(a|an|the)\b", " ", text), then " ".join(text.split())
std::u32string WithoutArticles(std::u32string_view text);

}  // namespace coppice
