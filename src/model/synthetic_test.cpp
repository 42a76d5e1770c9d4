#include "model/synthetic.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

// A name must always give the same weights: recorded times and checksums depend on them.
TEST(Synthetic, AnElementFollowsFromItsNameAndPlace) {
  std::vector<float> values(2 * 8);
  const ThreadPool pool(2);
  FillSynthetic({"blk.0.attn_q.weight", {2, 8}, DType::kF32}, std::as_writable_bytes(std::span(values)),
                pool);
  EXPECT_EQ(values.front(), -0.154658452f);
  EXPECT_EQ(values[1], 0.0920654684f);
  EXPECT_EQ(values.back(), 0.548132181f);
}

}  // namespace
}  // namespace coppice
