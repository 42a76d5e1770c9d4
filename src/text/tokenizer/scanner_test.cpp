// Every scanner against PCRE2 with the published expression, on random Unicode text.
#include "text/tokenizer/scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/tokenizer/regex.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

constexpr Pattern kPatterns[] = {Pattern::kGpt2, Pattern::kLlama3, Pattern::kQwen2, Pattern::kTekken,
                                 Pattern::kBloom};

// Characters of every class that a pattern distinguishes, some listed twice to be more frequent. Without
// U+180E, which only PCRE2 treats as white space.
constexpr uint32_t kAlphabet[] = {
    'a',    's',     't',     'r',    'e',    'v',    'm',   'l',    'd',    'S',      'L',    'E',   'A',
    'R',    '\'',    '\'',    '\'',   ' ',    ' ',    ' ',   '\n',   '\n',   '\r',     '\t',   0x85,  0xA0,
    0x2003, 0x2028,  0x3000,  '1',    '2',    '9',    0x660, 0xB2,   0x2167, '.',      ',',    '!',   '?',
    '(',    ')',     '|',     '/',    '-',    '_',    '+',   '$',    0x20AC, 0x301,    0x323,  0x903, 0x20DD,
    0xE9,   0xC9,    0x17F,   0x1C5,  0x2B0,  0x4E00, 0x5D0, 0x2026, 0x3002, 0xFF0C,   0x3001, 0x964, 0x6D4,
    0x60C,  0x1F600, 0x1F468, 0x200D, 0xFE0F, 0,      0x7F,  0xAD,   0xE000, 0x10FFFF, 0x378};

std::string RandomText(std::mt19937& random, bool any_code_point) {
  std::string text;
  const size_t length = random() % 40;
  for (size_t i = 0; i < length; ++i) {
    uint32_t cp = kAlphabet[random() % std::size(kAlphabet)];
    if (any_code_point && random() % 2 == 0) cp = random() % 0x30000;
    if ((cp >= 0xD800 && cp <= 0xDFFF) || cp == 0x180E) cp = 'x';
    const size_t times = random() % 8 == 0 ? 1 + random() % 6 : 1;
    for (size_t k = 0; k < times; ++k) AppendUtf8(cp, text);
  }
  return text;
}

TEST(ScannerTest, EqualsItsRegex) {
  for (const Pattern pattern : kPatterns) {
    const Regex regex(std::string(RegexOf(pattern)), "test");
    std::mt19937 random(static_cast<uint32_t>(pattern) + 1);
    for (int i = 0; i < 8000; ++i) {
      const std::string text = RandomText(random, i % 2 == 0);
      std::vector<TextRange> expected;
      std::vector<TextRange> matches;
      regex.FindAll(text, expected);
      Scan(pattern, text, matches);
      ASSERT_EQ(matches, expected) << "pattern " << static_cast<int>(pattern) << ", "
                                   << testing::PrintToString(text);
    }
  }
}

TEST(ScannerTest, CoversInvalidBytesToo) {
  std::mt19937 random(7);
  for (const Pattern pattern : kPatterns) {
    for (int i = 0; i < 2000; ++i) {
      std::string text(random() % 30, '\0');
      for (char& c : text) c = static_cast<char>(random());
      std::vector<TextRange> matches;
      Scan(pattern, text, matches);
      size_t end = 0;
      for (const TextRange match : matches) {
        if (pattern != Pattern::kBloom) {
          ASSERT_EQ(match.begin, end);
        }
        ASSERT_GE(match.begin, end);
        ASSERT_GT(match.end, match.begin);
        end = match.end;
      }
      if (pattern != Pattern::kBloom) {
        ASSERT_EQ(end, text.size());
      }
    }
  }
}

TEST(ScannerTest, KnowsItsOwnExpressionsOnly) {
  for (const Pattern pattern : kPatterns) EXPECT_EQ(FindPattern(RegexOf(pattern)), pattern);
  EXPECT_EQ(FindPattern(" ?[^(\\s|[.,!?…。，、।۔،])]+"), Pattern::kBloom);
  EXPECT_EQ(FindPattern("\\p{N}"), std::nullopt);
}

TEST(RegexTest, RefusesWhatItCannotRead) {
  EXPECT_THROW(Regex("(unclosed", "f"), Error);
  EXPECT_THROW(Regex("[a[bc]]", "f"), Error);
  EXPECT_THROW(Regex("[a&&b]", "f"), Error);
  EXPECT_NO_THROW(Regex("[[:alpha:]\\[]+", "f"));
}

TEST(RegexTest, StopsAtTheMatchLimit) {
  const Regex regex("(a+)+b", "model/tokenizer.json");
  std::vector<TextRange> matches;
  EXPECT_THROW(regex.FindAll(std::string(64, 'a') + "c b", matches), Error);
}

TEST(RegexTest, SkipsInvalidBytes) {
  std::vector<TextRange> matches;
  Regex("a+", "f").FindAll(
      "aa\xFF"
      "a",
      matches);
  EXPECT_EQ(matches, (std::vector<TextRange>{{0, 2}, {3, 4}}));
}

}  // namespace
}  // namespace coppice
