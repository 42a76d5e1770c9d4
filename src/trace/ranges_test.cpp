#include "trace/ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "trace/texts.h"
#include "trace/trace_test_support.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Parsed(std::string_view text, int64_t end = 1000, int64_t most = 1000) {
  std::vector<int32_t> positions;
  EXPECT_EQ(ParseRanges(text, end, most, positions), "") << text;
  return positions;
}

std::string Wrong(std::string_view text, int64_t end = 1000, int64_t most = 1000) {
  std::vector<int32_t> positions;
  const std::string wrong = ParseRanges(text, end, most, positions);
  EXPECT_NE(wrong, "") << text;
  EXPECT_LE(static_cast<int64_t>(positions.size()), most);
  return wrong;
}

TEST(Ranges, TextIsShortAndComesBack) {
  EXPECT_EQ(RangesText(std::vector<int32_t>{}), "");
  EXPECT_EQ(RangesText(std::vector<int32_t>{7}), "7");
  std::vector<int32_t> positions = Span(0, 100);
  positions.push_back(120);
  positions.push_back(121);
  EXPECT_EQ(RangesText(positions), "0-99,120-121");
  EXPECT_EQ(Parsed("0-99,120-121"), positions);
  EXPECT_THAT(Parsed(""), ElementsAre());
  EXPECT_THAT(Parsed("3,5-5,7-8"), ElementsAre(3, 5, 7, 8));
}

TEST(Ranges, EveryFaultIsFound) {
  for (const char* text :
       {"x", "-1", "1-", "1,", ",1", "1,,2", "1-2-3", "1 2", " 1", "+1", "0x1", "1.5", "1;2"}) {
    Wrong(text);
  }
  for (const char* text : {"2,1", "1,1", "5-3", "1-4,4", "1-4,2-3"})
    EXPECT_THAT(Wrong(text), HasSubstr("ascend"));
  EXPECT_THAT(Wrong("1000"), HasSubstr("position 1000 is outside 0 to 999"));
  EXPECT_THAT(Wrong("0-1000"), HasSubstr("outside"));
  EXPECT_THAT(Wrong("99999999999999999999"), HasSubstr("no position"));
  EXPECT_THAT(Wrong("4294967297"), HasSubstr("no position")) << "must not wrap to 1";
  EXPECT_EQ(Parsed("0-9", 1000, 10).size(), 10u);
  EXPECT_THAT(Wrong("0-10", 1000, 10), HasSubstr("more than 10"));
  EXPECT_THAT(Wrong("0-4,6-11", 1000, 10), HasSubstr("more than 10"));
}

TEST(Texts, ACharacterStandsWithThePieceOfItsFirstByte) {
  EXPECT_THAT(TextsOfPieces({"caf\xc3", "\xa9!", ""}), ElementsAre("caf\xc3\xa9", "!", ""));
  // Four bytes over four pieces, then a character of the last one.
  EXPECT_THAT(TextsOfPieces({"\xf0", "\x9f", "\x8c", "\xb2x"}), ElementsAre("\xf0\x9f\x8c\xb2", "", "", "x"));
}

TEST(Texts, WhatIsNoCharacterIsReplacedAndNothingElse) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_THAT(TextsOfPieces({"a\xff", "\xc3", "b"}), ElementsAre("a" + bad, bad, "b"));
  EXPECT_EQ(ReplaceInvalidUtf8("\xed\xa0\x80"), bad + bad + bad) << "a surrogate";
  EXPECT_EQ(ReplaceInvalidUtf8("\xc0\x80"), bad + bad) << "an overlong form";
  EXPECT_EQ(ReplaceInvalidUtf8("na\xc3\xafve \xe2\x82\xac"), "na\xc3\xafve \xe2\x82\xac");
  EXPECT_TRUE(IsUtf8("\xe2\x82\xac"));
  EXPECT_FALSE(IsUtf8("\xe2\x82"));
}

}  // namespace
}  // namespace coppice
