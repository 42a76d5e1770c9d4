#include "eval/report/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"

namespace coppice::svg_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Svg, NothingFromOutsideBecomesMarkup) {
  EXPECT_EQ(Escaped("<script>alert('x')</script> & \"y\""),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
  EXPECT_EQ(Escaped(std::string("a\x01\x1b[31mb\x7f", 9)), "a\uFFFD\uFFFD[31mb\uFFFD");
  EXPECT_EQ(Escaped("caf\xc3\xa9 \xff"), "caf\u00e9 \uFFFD");
  Svg svg("a", 10, 10, "<b>", "\" onload=\"x");
  svg.Text({1, 2}, "</text><x>", Anchor::kEnd);
  svg.Rect({0, 0}, 1, 1, "bar", "<i>");
  const std::string text = svg.Element();
  for (const char* bad : {"<b>", "<x>", "<i>", "\" onload=\""}) EXPECT_THAT(text, Not(HasSubstr(bad)));
  EXPECT_THAT(text, HasSubstr("text-anchor=\"end\">&lt;/text&gt;&lt;x&gt;</text>"));
  EXPECT_THAT(text, HasSubstr("aria-labelledby=\"a-title a-desc\""));
  EXPECT_THAT(svg.File("s{}"), HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""));
}

TEST(Svg, CoordinatesAreShort) {
  EXPECT_EQ(Coordinate(12), "12");
  EXPECT_EQ(Coordinate(12.5), "12.5");
  EXPECT_EQ(Coordinate(-0.001), "0");
  EXPECT_EQ(Coordinate(1.0 / 3), "0.33");
  EXPECT_EQ(Coordinate(1e5), "100000");
}

TEST(Svg, ShortTextsFitAndStayUtf8) {
  EXPECT_EQ(Shortened("sliminfer", 200), "sliminfer");
  const std::string many = "sliminfer keep=0.25/0.125/0.0625,layers=4/6/8,caf\u00e9\u00e9\u00e9\u00e9";
  for (double width = 20; width < 400; width += 7) {
    const std::string text = Shortened(many, width);
    EXPECT_LE(TextWidth(text), width) << text;
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  EXPECT_THAT(Shortened(many, 150), testing::StartsWith("sliminf"));
  EXPECT_LT(TextWidth("iiii"), TextWidth("mmmm"));
}

}  // namespace
}  // namespace coppice::svg_test
