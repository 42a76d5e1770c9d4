#include "base/error.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(Error, TheMessageIsOneLineWhateverItQuotes) {
  const std::string name = "a\nready: all is well\r\x1b[2J\x7f\xc3\xa9";
  EXPECT_STREQ(Error("tensor '{}'", name).what(), "tensor 'a?ready: all is well??[2J?\xc3\xa9'");
}

}  // namespace
}  // namespace coppice
