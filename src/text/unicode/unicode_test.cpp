#include "text/unicode/unicode.h"

#include <gtest/gtest.h>

#include "text/tokenizer/tokenizer.h"

namespace coppice {
namespace {

TEST(UnicodeTest, DecodesWhatIsValidOnly) {
  EXPECT_EQ(DecodeUtf8("\xF0\x9F\x98\x80", 0).code, 0x1F600u);
  EXPECT_EQ(DecodeUtf8("\xF4\x8F\xBF\xBF", 0).code, 0x10FFFFu);
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    EXPECT_EQ(DecodeUtf8(bad, 0).code, kInvalidByte) << bad;
    EXPECT_EQ(DecodeUtf8(bad, 0).size, 1u) << bad;
  }
  EXPECT_EQ(DecodeUtf8("", 0).size, 0u);
}

TEST(UnicodeTest, EncodesEveryLength) {
  for (const uint32_t cp : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    AppendUtf8(cp, text);
    EXPECT_EQ(DecodeUtf8(text, 0).code, cp);
    EXPECT_EQ(DecodeUtf8(text, 0).size, text.size());
  }
}

TEST(UnicodeTest, Properties) {
  EXPECT_TRUE(IsLetter('A') && IsLetter(0x4E00) && !IsLetter(0x301) && !IsLetter(0x10FFFF));
  EXPECT_TRUE(IsWhiteSpace(0xA0) && !IsWhiteSpace(0x1C) && !IsWhiteSpace(0x180E));
  EXPECT_TRUE(IsNumber(0xB2) && IsNumber(0x2167) && !IsDecimal(0xB2) && IsDecimal(0x660));
  EXPECT_TRUE(IsWordPart('_') && IsWordPart('7') && IsWordPart(0x301) && IsWordPart(0x24B6) &&
              !IsWordPart(0xB2));
  EXPECT_TRUE(IsPunctuation('+') && IsPunctuation(0x3002) && !IsPunctuation(0x20AC));
  EXPECT_TRUE(IsPrintable(' ') && !IsPrintable(0xA0) && !IsPrintable(0x378) && !IsPrintable(0xAD));
  for (const auto property :
       {IsLetter, IsNumber, IsDecimal, IsWhiteSpace, IsPunctuation, IsWordPart, IsPrintable}) {
    EXPECT_FALSE(property(kInvalidByte));
  }
}

TEST(UnicodeTest, ControlIsEveryAssignedOther) {
  for (const uint32_t c : {0x0u, 0x1Fu, 0x7Fu, 0x9Fu, 0xADu, 0x200Bu, 0xFEFFu, 0xE000u, 0x10FFFDu})
    EXPECT_TRUE(IsControl(c)) << std::hex << c;
  // U+0378 is not assigned.
  for (const uint32_t c : {0x20u, 0x61u, 0xA0u, 0x2028u, 0x378u, 0xFFFDu, kInvalidByte})
    EXPECT_FALSE(IsControl(c)) << std::hex << c;
}

TEST(UnicodeTest, GraphemesAreWhatAReaderSeesAsOne) {
  EXPECT_EQ(GraphemeSize("ab", 0), 1u);
  EXPECT_EQ(GraphemeSize("ab", 1), 1u);
  EXPECT_EQ(GraphemeSize("\r\n\n", 0), 2u);
  EXPECT_EQ(GraphemeSize("xe\xCC\x81\xCC\xA3y", 1), 5u) << "e with two marks";
  EXPECT_EQ(GraphemeSize("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8.", 0), 9u) << "a Hangul syllable in parts";
  EXPECT_EQ(GraphemeSize("\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB!", 0), 11u) << "joined emoji";
  // Flags are pairs: DE, FR.
  EXPECT_EQ(GraphemeSize("\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\xF0\x9F\x87\xAB\xF0\x9F\x87\xB7", 0), 8u);
  // Bytes that are not UTF-8 are alone, and end what is before them.
  EXPECT_EQ(GraphemeSize("\xFF\xCC\x81", 0), 1u);
  EXPECT_EQ(GraphemeSize("e\xCC", 0), 1u);
  EXPECT_EQ(GraphemeSize("e\xCC", 1), 1u);
}

TEST(UnicodeTest, Cases) {
  EXPECT_EQ(UpperOf(0xFF), char32_t{0x178});
  EXPECT_EQ(LowerOf(0x10A0), char32_t{0x2D00});  // Georgian
  EXPECT_EQ(TitleOf(0x1C6), char32_t{0x1C5});
  EXPECT_EQ(LowerOf('['), char32_t{'['});
}

TEST(UnicodeTest, NfcComposesOrdersAndKeeps) {
  const auto text = [](std::initializer_list<uint32_t> codes) {
    std::string out;
    for (const uint32_t code : codes) AppendUtf8(code, out);
    return out;
  };
  EXPECT_EQ(NormalizeNfc("plain"), "plain");
  EXPECT_EQ(NormalizeNfc(text({'e', 0x301})), text({0xE9}));
  EXPECT_EQ(NormalizeNfc(text({0x1E0A, 0x323})), text({0x1E0C, 0x307}));  // UAX 15, table 9
  EXPECT_EQ(NormalizeNfc(text({'q', 0x307, 0x323})), text({'q', 0x323, 0x307}));
  EXPECT_EQ(NormalizeNfc(text({0x212B})), text({0xC5}));                    // a singleton
  EXPECT_EQ(NormalizeNfc(text({0x958})), text({0x915, 0x93C}));             // excluded from composition
  EXPECT_EQ(NormalizeNfc(text({0x1112, 0x1161, 0x11AB})), text({0xD55C}));  // Hangul
  EXPECT_EQ(NormalizeNfc(text({0xAC00, 0x11A7})), text({0xAC00, 0x11A7}));  // no trailing consonant
  EXPECT_EQ(NormalizeNfc(text({'a', 0x301, 'b', 0x315, 0x300})), text({0xE1, 'b', 0x300, 0x315}));
  EXPECT_EQ(NormalizeNfc("e\xCC\x81\xFF"
                         "e\xCC\x81"),
            "\xC3\xA9\xFF\xC3\xA9");  // invalid bytes are kept
  EXPECT_EQ(NormalizeNfc(text({0x301})), text({0x301}));
}

// A run of a million marks, in the order that needs the most sorting.
TEST(UnicodeTest, NfcOfManyMarksKeepsThem) {
  std::string marks = "a";
  for (int i = 0; i < 250000; ++i) marks += "\xCC\x82\xCC\xA3";  // classes 230, 220
  const std::string normal = NormalizeNfc(marks);
  EXPECT_EQ(normal.substr(0, 5), "\xE1\xBA\xAD\xCC\xA3");  // U+1EAD: a with one mark of each class
  EXPECT_EQ(normal.size(), marks.size() - 2);
  EXPECT_EQ(normal.substr(normal.size() - 2), "\xCC\x82");
}

TEST(Utf8StreamTest, HoldsBackWhatIsUnfinished) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xF0"), "a");
  EXPECT_EQ(stream.Push("\x9F\x98"), "");
  EXPECT_EQ(stream.Push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8StreamTest, ReplacesWhatIsInvalid) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xFF"
                        "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stream.Push("\xE2\x82"
                        "c"),
            "\xEF\xBF\xBD"
            "c");
  EXPECT_EQ(stream.Push("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(stream.Push("\xE2\x82"), "");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Push("ok"), "ok");
}

}  // namespace
}  // namespace coppice
