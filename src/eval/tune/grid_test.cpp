#include "eval/tune/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "policies/registry.h"

namespace coppice {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

ModelShape ShapeOf(int layers) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = 2048;
  shape.ffn = 8192;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 64;
  shape.vocab = 1000;
  return shape;
}

TEST(Grid, EverySettingIsLegalAndActs) {
  for (const int layers : {10, 16, 32, 80}) {
    const ModelShape shape = ShapeOf(layers);
    const std::vector<int32_t> prompt(3000, 1);
    for (const std::string& wish : TunedMethods()) {
      const std::vector<std::string> specs = GridOf(wish, shape, 3000);
      EXPECT_GE(specs.size(), 2u) << wish;
      EXPECT_LE(specs.size(), 24u) << wish;
      EXPECT_EQ(std::set<std::string>(specs.begin(), specs.end()).size(), specs.size());
      for (const std::string& spec : specs) {
        EXPECT_TRUE(MakePolicy(spec, {.shape = shape, .tokens = 3000, .prompt = prompt}, {}).active) << spec;
      }
    }
  }
}

TEST(Grid, GivenKeysStay) {
  const std::vector<std::string> specs = GridOf("ftp:eta=0.77,last=20", ShapeOf(16), 8000);
  EXPECT_THAT(specs, Each(HasSubstr("eta=0.77,last=20")));
  EXPECT_EQ(specs.size(), 2u);
  EXPECT_THAT(GridOf("sliminfer:min=9", ShapeOf(16), 3000), Each(HasSubstr("min=9")));
}

TEST(Grid, TheBreakEvenLengthFollowsThePrompts) {
  EXPECT_THAT(GridOf("sliminfer", ShapeOf(16), 3000), Each(HasSubstr("min=2250")));
  EXPECT_THAT(GridOf("sliminfer", ShapeOf(16), 5000), Each(Not(HasSubstr("min="))));
}

TEST(Grid, RefusesWhatShortensNoPrefill) {
  for (const char* wish : {"h2o", "quest", "nothing", "none", "sliminfer+h2o", ":", "ftp:"})
    EXPECT_THROW(GridOf(wish, ShapeOf(16), 3000), Error) << wish;
}

std::vector<std::string> AllNeighbours(const std::string& spec, double step) {
  std::vector<std::string> all;
  for (const Direction& direction : NeighboursOf(spec, step))
    all.insert(all.end(), direction.specs.begin(), direction.specs.end());
  return all;
}

TEST(Grid, NeighboursDifferInOneElement) {
  const std::vector<std::string> all =
      AllNeighbours("lazyllm:keep=0.5/0.4,layers=4/8,min=0,revive=none", 0.15);
  EXPECT_EQ(all.size(), 8u);
  EXPECT_THAT(all, Contains("lazyllm:keep=0.425/0.4,layers=4/8,min=0,revive=none"));
  EXPECT_THAT(all, Contains("lazyllm:keep=0.5/0.4706,layers=4/8,min=0,revive=none"));
  EXPECT_THAT(all, Contains("lazyllm:keep=0.5/0.4,layers=3/8,min=0,revive=none"));
  EXPECT_THAT(all, Contains("lazyllm:keep=0.5/0.4,layers=4/9,min=0,revive=none"));
  EXPECT_THAT(AllNeighbours("lazyllm:layers=4/8", 0.3), Contains("lazyllm:layers=2/8"));
}

TEST(Grid, NearOneTheRestCounts) {
  EXPECT_THAT(AllNeighbours("ftp:eta=0.9", 0.5), testing::ElementsAre("ftp:eta=0.8", "ftp:eta=0.95"));
  EXPECT_THAT(AllNeighbours("minference:slash=1000", 0.5),
              testing::ElementsAre("minference:slash=500", "minference:slash=2000"));
  EXPECT_THAT(AllNeighbours("ftp", 0.5), testing::IsEmpty());
  EXPECT_EQ(AllNeighbours("sliminfer:keep=0.5+ftp:eta=0.9", 0.5).size(), 4u);
}

}  // namespace
}  // namespace coppice
