#include "base/fnv.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

// Published test vectors.
TEST(Fnv1a, GivesThePublishedHashes) {
  EXPECT_EQ(Fnv1a(""), 0xCBF29CE484222325u);
  EXPECT_EQ(Fnv1a("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171F73967E8u);
  EXPECT_EQ(Fnv1a("bar", Fnv1a("foo")), Fnv1a("foobar"));
  EXPECT_EQ(Fnv1a("\xE9"), (kFnvBasis ^ 0xE9) * 0x100000001B3u);  // bytes are unsigned
}

}  // namespace
}  // namespace coppice
