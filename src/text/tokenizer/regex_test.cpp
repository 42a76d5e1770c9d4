#include "text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coppice {
namespace {

std::string Pieces(std::string_view regex, std::string_view text) {
  std::vector<TextRange> matches;
  Regex(std::string(regex), "test").FindAll(text, matches);
  std::string pieces;
  for (const TextRange match : matches) {
    pieces.append(text.substr(match.begin, match.end - match.begin)).append("|");
  }
  return pieces;
}

// Contractions, digits, newlines, marks, invalid bytes, and U+180E, which PCRE2 alone calls white space.
TEST(RegexTest, KnownPatterns) {
  const std::string text =
      "Don't WE'LL été 12345, x_y!!\r\n\n  \t z\u180E\xFF\xFE. \u0915\u093F a\u0301 /\n  ";
  EXPECT_EQ(Pieces(kGpt2Regex, text),
            "Don|'t| WE|'|LL| été| 12345|,| x|_|y|!!|\r\n\n  \t| z|\u180E\xFF\xFE.| \u0915|\u093F| a|\u0301| "
            "/|\n  |");
  EXPECT_EQ(Pieces(kLlama3Regex, text),
            "Don|'t| WE|'LL| été| |123|45|,| x|_y|!!\r\n\n|  \t| z|\u180E\xFF\xFE.| \u0915|\u093F| a|\u0301| "
            "/\n|  |");
  EXPECT_EQ(Pieces(kQwen2Regex, text),
            "Don|'t| WE|'LL| été| |1|2|3|4|5|,| x|_y|!!\r\n\n|  \t| z|\u180E\xFF\xFE.| \u0915|\u093F| "
            "a|\u0301| /\n|  |");
  EXPECT_EQ(Pieces(kTekkenRegex, text),
            "Don|'t| WE|'LL| été| |1|2|3|4|5|,| x|_y|!!\r\n\n|  \t| z|\u180E\xFF\xFE.| \u0915\u093F| "
            "a\u0301| /\n|  |");
  EXPECT_EQ(Pieces(kBloomRegex, text),
            "Don't| WE'LL| été| 12345| x_y| z\u180E\xFF\xFE| \u0915\u093F| a\u0301| /|");
  for (const std::string_view regex :
       {kGpt2Regex, kLlama3Regex, kQwen2Regex, kTekkenRegex, kBloomRegex, kGpt4oRegex, kQwen35Regex}) {
    EXPECT_EQ(Pieces(regex, "\xFF"), "\xFF|");
    EXPECT_EQ(Pieces(regex, ""), "");
  }
}

// The pieces are those of Python's regex module.
TEST(RegexTest, WordsByCaseAndWithMarks) {
  const std::string text =
      "Don't WE'LL été 12345, x_y!!\r\n\n  \t z. \u0915\u093F a\u0301 /\n  camelCaseX's HTTPServer'D 漢字 ʰa "
      "ǅx 1٣²/usr//bin";
  EXPECT_EQ(Pieces(kGpt4oRegex, text),
            "Don't| WE'LL| été| |123|45|,| x|_y|!!\r\n\n|  \t| z|.| \u0915\u093F| a\u0301| /\n| | "
            "camel|Case|X's| HTTPServer'D| 漢字| ʰa| ǅx| |1٣²|/usr|//|bin|");
  EXPECT_EQ(Pieces(kQwen35Regex, text),
            "Don|'t| WE|'LL| été| |1|2|3|4|5|,| x|_y|!!\r\n\n|  \t| z|.| \u0915\u093F| a\u0301| /\n| | "
            "camelCaseX|'s| HTTPServer|'D| 漢字| ʰa| ǅx| |1|٣|²|/usr|//|bin|");
}

// These patterns backtrack over long runs of spaces and capitals.
TEST(RegexTest, LongRunsStayBelowTheLimits) {
  for (const std::string_view regex : {kLlama3Regex, kTekkenRegex, kGpt4oRegex, kQwen35Regex}) {
    for (const char c : {' ', '\n', 'a', 'A', '!', '\''}) {
      std::vector<TextRange> matches;
      Regex(std::string(regex), "test").FindAll(std::string(16 << 20, c), matches);
      EXPECT_LE(matches.size(), 1u);
    }
  }
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

// Each match scans the rest of the text and stays below the match limit; together they would take minutes.
TEST(RegexTest, StopsWhenCancelled) {
  const std::atomic<bool> cancelled{true};
  std::vector<TextRange> matches;
  EXPECT_THROW(Regex("a(?=[^b]*b)|a", "f").FindAll(std::string(4 << 20, 'a'), matches, &cancelled),
               Cancelled);
  EXPECT_TRUE(matches.empty());
}

// A group that repeats takes more of the JIT's stack with every turn.
TEST(RegexTest, OutgrowsTheStackOfTheCompiler) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "ab";
  std::vector<TextRange> matches;
  Regex("((a)|b)+c|[ab]+", "f").FindAll(text, matches);
  EXPECT_EQ(matches, (std::vector<TextRange>{{0, text.size()}}));
}

}  // namespace
}  // namespace coppice
