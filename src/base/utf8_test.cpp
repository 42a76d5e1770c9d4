#include "base/utf8.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

// The boundaries of table 3-7 of the Unicode standard.
TEST(Utf8, IsWellFormedOrNot) {
  for (const char* good : {"", "a\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\xE2\x82\xAC!"})
    EXPECT_TRUE(IsUtf8(good)) << good;
  for (const char* bad :
       {"\x80", "a\xBF", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF", "\xE2\x82", "\xE2\x82z", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_FALSE(IsUtf8(bad)) << bad;
}

}  // namespace
}  // namespace coppice
