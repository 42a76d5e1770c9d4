#include "formats/printable.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(Printable, NothingMakesATerminalAct) {
  EXPECT_EQ(WithoutControls("a\x1b[31mb\x7f\nc\t"), "a?[31mb??c?");
  EXPECT_EQ(WithoutControls("a\nb\tc\r", "\n\t"), "a\nb\tc?");
  EXPECT_EQ(WithoutControls("\xc2\x9b"
                            "31m \xc2\xa0\xc3\xa9 \xc2"),
            "?31m \xc2\xa0\xc3\xa9 \xc2");  // CSI in C1
  EXPECT_EQ(Printable(std::string(120, 'a')), std::string(100, 'a') + "...");
  EXPECT_EQ(Printable(std::string(120, 'a'), 4096), std::string(120, 'a'));
}

}  // namespace
}  // namespace coppice
