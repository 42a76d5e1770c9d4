#include "policies/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;
using testing::Not;

enum class Colour { kRed, kGreen, kBlue };

struct Config {
  int whole = 3;
  double share = 0.5;
  uint64_t seed = 0;
  std::vector<int> layers = {4, 8};
  std::vector<double> keep = {0.25, 0.5};
  std::vector<std::string> pools = {"max"};
  bool mean = true;
  Colour colour = Colour::kGreen;
};

Keys Table(Config& c) {
  return {
      {"whole", &c.whole, -2, 3, "a whole number"},
      {"share", &c.share, 0.5, 2, "a number", "half", "about 1"},
      {"seed", &c.seed, 0, kManyTokens, "of something"},
      Keys("layers", &c.layers, 1, 9, "some layers")
          .Check([&c] { return c.layers.size() > 2 ? "are too many" : ""; })
          .NoValues("none"),
      {"keep", &c.keep, kAboveZero, 1, "shares"},
      {"pools", &c.pools, "max mean", "words"},
      {"mean", &c.mean, "none mean", "a word"},
      {"colour", &c.colour, "red green blue", "a word"},
  };
}

// The text of a spec after it was read, or the error.
std::string TextOf(const std::string& spec) {
  std::string text;
  const std::string error = ErrorOf([&] {
    Config config;
    Keys keys = Table(config);
    keys.Read(ParseSpec(spec).front());
    text = keys.Text();
  });
  return text.empty() ? error : text;
}

TEST(Keys, AbsentKeysKeepTheirDefaults) {
  const std::string defaults =
      "m:whole=3,share=0.5,seed=0,layers=4/8,keep=0.25/0.5,pools=max,mean=mean,colour=green";
  EXPECT_EQ(TextOf("m"), defaults);
  EXPECT_EQ(TextOf(defaults), defaults);
  Config config;
  Keys keys = Table(config);
  keys.Read(ParseSpec("m:whole=-2,layers=9,mean=none,colour=blue,pools=mean/max,seed=1e3").front());
  EXPECT_EQ(config.whole, -2);
  EXPECT_EQ(config.layers, std::vector<int>{9});
  EXPECT_EQ(config.pools, (std::vector<std::string>{"mean", "max"}));
  EXPECT_FALSE(config.mean);
  EXPECT_EQ(config.colour, Colour::kBlue);
  EXPECT_EQ(config.seed, 1000u);
  EXPECT_TRUE(keys.Given("whole"));
  EXPECT_FALSE(keys.Given("share"));
  EXPECT_EQ(keys.Text(),
            "m:whole=-2,share=0.5,seed=1000,layers=9,keep=0.25/0.5,pools=mean/max,mean=none,colour=blue");
}

TEST(Keys, HelpFollowsFromTheRows) {
  Config config;
  std::vector<std::string> rows;
  for (const MethodKey& key : Table(config).Help())
    rows.push_back(fmt::format("{}|{}|{}|{}", key.name, key.fallback, key.range, key.meaning));
  EXPECT_THAT(rows, testing::ElementsAre(
                        "whole|3|-2 to 3|a whole number", "share|half|about 1|a number",
                        "seed|0|0 up|of something", "layers|4/8|1 to 9, one or one per layer|some layers",
                        "keep|0.25/0.5|0 to 1, one or one per layer|shares",
                        "pools|max|max, mean, one or one per layer|words", "mean|mean|mean, none|a word",
                        "colour|green|green, red, blue|a word"));
}

TEST(Keys, RangesAreInclusive) {
  for (const char* good : {"0.5", "2", "1e0", "2.0", "1."})
    EXPECT_THAT(TextOf(std::string("m:share=") + good), HasSubstr("m:whole=3")) << good;
  for (const char* good : {"-2", "3", "0", "3.0", "1e0"})
    EXPECT_THAT(TextOf(std::string("m:whole=") + good), HasSubstr("share=0.5")) << good;
  for (const char* bad :
       {"0.49", "2.01", "-1", "inf", "-inf", "nan", "1e999", " 1", "1 ", "0x1", "one", "1/1", "1e", "--1"}) {
    EXPECT_EQ(TextOf(std::string("m:share=") + bad),
              fmt::format("m: share={} is not a number from 0.5 to 2", bad));
  }
  for (const char* bad : {"-3", "4", "0.5", "1e999", "nan", "inf", "99999999999999999999", "2-", "1x"}) {
    EXPECT_EQ(TextOf(std::string("m:whole=") + bad),
              fmt::format("m: whole={} is not a whole number from -2 to 3", bad));
  }
}

TEST(Keys, ListsNameTheWrongItem) {
  EXPECT_EQ(TextOf("m:keep=1/x/3"), "m: keep=1/x/3: 'x' is not a number from 1e-06 to 1");
  EXPECT_THAT(TextOf("m:keep=1//1"), HasSubstr("'' is not a number"));
  EXPECT_THAT(TextOf("m:keep=1/nan"), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(TextOf("m:keep=0"), HasSubstr("'0' is not a number"));
  EXPECT_THAT(TextOf("m:layers=1/10"), HasSubstr("'10' is not a whole number from 1 to 9"));
  EXPECT_THAT(TextOf("m:layers=2.5"), HasSubstr("'2.5' is not a whole number"));
  EXPECT_THAT(TextOf("m:layers=4294967297"), HasSubstr("'4294967297' is not a whole number"));
  EXPECT_EQ(TextOf("m:pools=max/min"), "m: pools=max/min: 'min' is not there; it can be max, mean");
}

TEST(Keys, ChecksAndListsWithoutValues) {
  EXPECT_EQ(TextOf("m:layers=1/2/3"), "m: layers=1/2/3 are too many");
  EXPECT_THAT(TextOf("m:layers=none"), HasSubstr(",layers=none,"));
  EXPECT_THAT(TextOf("m:keep=none"), HasSubstr("'none' is not a number"));
  Config config;
  const Keys keys = Table(config);
  config.keep.clear();
  EXPECT_THAT(keys.Text(), Not(HasSubstr("keep")));
}

TEST(Keys, WordsAndUnknownKeys) {
  EXPECT_EQ(TextOf("m:mean=1"), "m: mean=1 is not there; it can be mean, none");
  EXPECT_EQ(TextOf("m:colour=pink"), "m: colour=pink is not there; it can be green, red, blue");
  EXPECT_EQ(TextOf("m:hole=1"),
            "m: unknown key 'hole': did you mean whole? It has whole, share, seed, layers, keep, pools, "
            "mean, colour");
}

TEST(Keys, AFileMayBeLeftOut) {
  std::string path;
  Keys keys = Keys::OptionalFile("file", &path, "a file", "sizes");
  keys.Read({.name = "m"});
  EXPECT_EQ(keys.Text(), "m:file=none");
  keys.Read(ParseSpec("m:file=x.json").front());
  EXPECT_EQ(path, "x.json");
  EXPECT_EQ(keys.Text(), "m:file=x.json");
  keys.Read(ParseSpec("m:file=none").front());
  EXPECT_EQ(path, "");
  EXPECT_TRUE(keys.Help().front().names_file);
}

TEST(Keys, AFileMustBeGiven) {
  std::string path;
  Keys keys = Keys::File("file", &path, "a safetensors file", "weights", "no weights, no run");
  EXPECT_EQ(ErrorOf([&] { keys.Read({.name = "m"}); }), "m: file= is missing: no weights, no run");
  keys.Read(ParseSpec("m:file=\"a+b\"").front());
  EXPECT_EQ(path, "a+b");
  EXPECT_EQ(keys.Text(), "m:file=\"a+b\"");
  EXPECT_TRUE(keys.Help().front().names_file);
}

}  // namespace
}  // namespace coppice
