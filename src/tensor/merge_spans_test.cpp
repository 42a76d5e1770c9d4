#include "tensor/merge_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MergeSpans, SortsAndJoins) {
  EXPECT_THAT(MergeSpans({{5, 9}, {1, 3}}), ElementsAre(PositionSpan{1, 3}, PositionSpan{5, 9}));
  EXPECT_THAT(MergeSpans({{1, 8}, {2, 3}, {8, 9}}), ElementsAre(PositionSpan{1, 9}));
  EXPECT_THAT(MergeSpans({{4, 4}, {1, 2}}), ElementsAre(PositionSpan{1, 2}));
  EXPECT_THAT(MergeSpans({}), IsEmpty());
}

}  // namespace
}  // namespace coppice
