#include "eval/tune/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "eval/tune/grid_table.h"
#include "policies/registry.h"

namespace coppice::grid_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

ModelShape ShapeOf(int layers) {
  ModelShape shape;
  shape.hidden = 2048;
  shape.layers.assign(static_cast<size_t>(layers), {.heads = 32, .kv_heads = 8, .head_dim = 64, .ffn = 8192});
  shape.vocab = 1000;
  return shape;
}

TEST(Grid, EverySettingIsLegalAndActs) {
  for (const int layers : {10, 16, 32, 80}) {
    const ModelShape shape = ShapeOf(layers);
    const std::vector<int32_t> prompt(3000, 1);
    for (const std::string& wish : TunedMethods()) {
      const std::vector<std::string> specs = GridOf(wish, shape, 3000, 2250).specs;
      EXPECT_GE(specs.size(), 2u) << wish;
      EXPECT_LE(specs.size(), 200u) << wish;
      EXPECT_EQ(std::set<std::string>(specs.begin(), specs.end()).size(), specs.size());
      // Some specs of the grid are not legal for this model: a method may not have the value, or two stages
      // may fall into one layer.
      size_t legal = 0;
      for (const std::string& spec : specs) {
        try {
          legal += MakePolicy(spec, {.shape = shape, .tokens = 3000, .prompt = prompt}, {}).active ? 1 : 0;
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr(spec.substr(0, spec.find(':')))) << spec;
        }
      }
      EXPECT_GE(2 * legal, specs.size()) << wish << " in " << layers << " layers";
    }
  }
}

TEST(Grid, TableNamesMethodsAndKeysOnce) {
  std::set<std::string> names;
  for (const GridMethod& method : GridTable()) {
    EXPECT_TRUE(names.insert(method.name).second) << method.name;
    std::set<std::string> keys;
    for (const GridKey& key : method.keys) {
      EXPECT_TRUE(keys.insert(key.key).second) << method.name << " " << key.key;
      EXPECT_FALSE(key.values.empty()) << method.name << " " << key.key;
    }
  }
}

TEST(Grid, FormsOfTheTable) {
  const std::vector<std::string> slim = GridOf("sliminfer:keep=0.5", ShapeOf(30), 4096, 5000).specs;
  EXPECT_THAT(slim, Contains("sliminfer:keep=0.5,layers=15/21/27"));
  EXPECT_THAT(GridOf("flexprefill:gamma=0.9", ShapeOf(30), 4000, 3000).specs,
              Contains("flexprefill:gamma=0.9,min=3000,min_budget=500"));
  // Three stages where there is room for two: the last share goes, of the values of the table alone.
  EXPECT_THAT(GridOf("sliminfer:layers=4/6", ShapeOf(30), 4096, 5000).specs,
              Contains("sliminfer:keep=0.7/0.5,layers=4/6"));
}

TEST(Grid, GivenKeysStay) {
  const std::vector<std::string> specs = GridOf("ftp:eta=0.77,last=20", ShapeOf(16), 8000, 6000).specs;
  EXPECT_THAT(specs, Each(AllOf(HasSubstr("eta=0.77,"), HasSubstr("last=20"))));
  EXPECT_EQ(specs.size(), 6u);
  EXPECT_THAT(GridOf("sliminfer:min=9", ShapeOf(16), 3000, 2250).specs, Each(HasSubstr("min=9")));
}

TEST(Grid, TheBreakEvenLengthFollowsThePrompts) {
  EXPECT_THAT(GridOf("sliminfer", ShapeOf(16), 3000, 2250).specs, Each(HasSubstr("min=2250")));
  EXPECT_THAT(GridOf("sliminfer", ShapeOf(16), 6000, 4500).specs, Each(Not(HasSubstr("min="))));
  EXPECT_THAT(GridOf("sliminfer+ftp", ShapeOf(16), 1000, 750).specs, Each(HasSubstr("min=750+ftp")));
}

TEST(Grid, RefusesWhatShortensNoPrefill) {
  for (const char* wish : {"h2o", "quest", "nothing", "none", "sliminfer+h2o", ":", "ftp:"})
    EXPECT_THROW(GridOf(wish, ShapeOf(16), 3000, 2250), Error) << wish;
}

TEST(Grid, CompositionsKeepTheSetting) {
  const std::vector<MethodGrid> grids = CompositionsOf("static:keep=0.4,layer=8", ShapeOf(30), 4096, 3072);
  ASSERT_GE(grids.size(), 4u);
  for (const MethodGrid& grid : grids) {
    EXPECT_THAT(grid.name, testing::StartsWith("static+"));
    EXPECT_THAT(grid.specs, Each(testing::StartsWith("static:keep=0.4,layer=8+")));
    EXPECT_EQ(NamesOf(grid.specs.front()), grid.name);
  }
  for (const MethodGrid& grid : CompositionsOf("ftp:eta=0.9", ShapeOf(30), 4096, 3072))
    EXPECT_NE(grid.name, "ftp+ftp");
}

TEST(Grid, TheLikelySettingsFitEveryModel) {
  for (const int layers : {10, 24, 30, 80}) {
    const ModelShape shape = ShapeOf(layers);
    const std::vector<std::string> specs = PromisingSpecs(shape, 4096, 3687);
    ASSERT_GE(specs.size(), 6u);
    EXPECT_EQ(specs[0], "coppice") << "the defaults first";
    EXPECT_THAT(specs, Contains("sliminfer:min=3687")) << "its own break-even length is longer";
    for (const std::string& spec : specs) {
      try {
        MakePolicy(spec, {.shape = shape, .tokens = 4096}, {});
      } catch (const Error& error) {
        ADD_FAILURE() << layers << " layers: " << error.what();
      }
    }
  }
  EXPECT_THAT(PromisingSpecs(ShapeOf(24), 4096, 3687),
              Contains("coppice:keep=0.4/0.15/0.05,layers=10/16/20"));
  EXPECT_THAT(PromisingSpecs(ShapeOf(24), 900, 810)[0], HasSubstr("coppice:min=810"));
}

// A method with its defaults has neighbours, too: by the registry's keys, whatever they are called.
TEST(Grid, DefaultsHaveNeighbours) {
  const ModelShape shape = ShapeOf(24);
  for (const std::string name : {"coppice", "sliminfer", "uniprefill", "coppice:min=5+ftp"}) {
    const std::string full = MakePolicy(name, {.shape = shape, .tokens = 4096}, {}).spec;
    const std::string whole = WithTunedKeys(name, full);
    EXPECT_FALSE(NeighboursOf(whole, 0.3).empty()) << whole;
    EXPECT_EQ(MakePolicy(whole, {.shape = shape, .tokens = 4096}, {}).spec, full);
    for (const Direction& direction : NeighboursOf(whole, 0.3))
      EXPECT_THAT(direction.name, Not(HasSubstr("revive"))) << "a prefill revives nothing";
  }
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
}  // namespace coppice::grid_test
