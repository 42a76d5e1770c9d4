#include "policies/spec.h"
#include "test_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace coppice {
namespace {

using testing::HasSubstr;

TEST(ParseSpec, ReadsMethodsAndValues) {
  EXPECT_TRUE(ParseSpec("none").empty());
  const std::vector<MethodSpec> one = ParseSpec("ftp");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "ftp");
  EXPECT_TRUE(one[0].values.empty());

  const std::vector<MethodSpec> two = ParseSpec("sliminfer:layers=2/4,keep=0.5+ftp:eta=.9");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].name, "sliminfer");
  EXPECT_EQ(two[0].values, (std::map<std::string, std::string>{{"keep", "0.5"}, {"layers", "2/4"}}));
  EXPECT_EQ(two[1].name, "ftp");
  EXPECT_EQ(two[1].values, (std::map<std::string, std::string>{{"eta", ".9"}}));
  EXPECT_EQ(ParseSpec("a:k=x=y")[0].values.at("k"), "x=y");  // the reader of the value refuses it
}

TEST(ParseSpec, QuotesHideWhatJoins) {
  const std::vector<MethodSpec> two = ParseSpec(R"(sdtp:file="a+b,c=\"d\"\\e/f:g",min=0+ftp)");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].values,
            (std::map<std::string, std::string>{{"file", R"(a+b,c="d"\e/f:g)"}, {"min", "0"}}));
  EXPECT_EQ(two[1].name, "ftp");
  EXPECT_EQ(ParseSpec(R"(a:k=b\c)")[0].values.at("k"), R"(b\c)");  // a backslash means nothing outside quotes
  for (const char* path : {"plain/path.gguf", "a+b", "a,b", "\"", "\\+", "C:\\x", "a\"+,\\\"b", "+\\"}) {
    EXPECT_EQ(ParseSpec(std::string("m:k=") + QuotedValue(path) + ",l=1+n")[0].values.at("k"), path);
  }
  EXPECT_EQ(QuotedValue("plain/path.gguf"), "plain/path.gguf");
}

TEST(ParseSpec, EveryErrorQuotesThePart) {
  const std::pair<const char*, const char*> bad[] = {{"", "a method's name is missing"},
                                                     {"+", "a method's name is missing"},
                                                     {"ftp+", "a method's name is missing"},
                                                     {"+ftp", "a method's name is missing"},
                                                     {"ftp++sliminfer", "name is missing"},
                                                     {":eta=1", "a method's name is missing"},
                                                     {"ftp:", "'' is not key=value"},
                                                     {"ftp:eta", "'eta' is not key=value"},
                                                     {"ftp:=0.5", "'=0.5' is not key=value"},
                                                     {"ftp:eta=", "'eta=' is not key=value"},
                                                     {"ftp:eta=1,", "'' is not key=value"},
                                                     {"ftp:eta=1,,min=0", "'' is not key=value"},
                                                     {"ftp:eta=1,eta=1", "'eta' is set twice"},
                                                     {"ftp+ftp", "'ftp' stands twice"},
                                                     {"a:k=\"b+c", "a quote is not closed"},
                                                     {"a:k=\"b\\\"", "a quote is not closed"},
                                                     {"a:k=b\"c\"", "around the whole value"},
                                                     {"a:k=\"b\"c", "around the whole value"},
                                                     {"a:k=\"b\"\"c\"", "around the whole value"},
                                                     {"a:k=\"\"", "around the whole value"},
                                                     {"ftp:eta=1+ftp:min=0", "'ftp' stands twice"}};
  for (const auto& [spec, part] : bad) {
    const std::string message = ErrorOf([&] { ParseSpec(spec); });
    EXPECT_THAT(message, HasSubstr(part)) << spec;
    EXPECT_THAT(message, HasSubstr(std::string("--prune ") + spec));
  }
}

class SpecReaderTest : public testing::Test {
 protected:
  // The error of reading `text` as one value of key "k".
  template <typename Read>
  std::string Reading(const std::string& text, Read read) {
    const MethodSpec spec{"m", {{"k", text}}};
    return ErrorOf([&] {
      SpecReader reader(spec);
      read(reader);
    });
  }
};

TEST_F(SpecReaderTest, AbsentKeysFallBack) {
  const MethodSpec spec{"m", {{"there", "3"}}};
  SpecReader read(spec);
  EXPECT_EQ(read.Integer("absent", -7, 0, 1), -7);
  EXPECT_EQ(read.Number("absent", 2.5, 0, 1), 2.5);
  EXPECT_EQ(read.Numbers("absent", {1, 2}, 0, 1), (std::vector<double>{1, 2}));
  EXPECT_EQ(read.Integers("absent", {4}, 0, 1), std::vector<int>{4});
  EXPECT_THAT(ErrorOf([&] { read.RefuseUnknownKeys(); }), HasSubstr("unknown key 'there'; it has absent"));
  EXPECT_EQ(read.Integer("there", 0, 0, 3), 3);
  EXPECT_EQ(ErrorOf([&] { read.RefuseUnknownKeys(); }), "no error");
}

TEST_F(SpecReaderTest, RangesAreInclusive) {
  const auto number = [](SpecReader& r) { r.Number("k", 0, 0.5, 2); };
  const auto integer = [](SpecReader& r) { r.Integer("k", 0, -2, 3); };
  for (const char* good : {"0.5", "2", "1e0", "2.0", "1."})
    EXPECT_EQ(Reading(good, number), "no error") << good;
  for (const char* good : {"-2", "3", "0", "3.0", "1e0"})
    EXPECT_EQ(Reading(good, integer), "no error") << good;
  for (const char* bad : {"0.49", "2.01", "-1", "inf", "-inf", "nan", "1e999", "", " 1", "1 ", "0x1", "+1",
                          "1,5", "one", "1/1", "1e", "--1"}) {
    EXPECT_THAT(Reading(bad, number),
                HasSubstr("m: k=" + std::string(bad) + " is not a number from 0.5 to 2"))
        << bad;
  }
  for (const char* bad : {"-3", "4", "0.5", "1e999", "nan", "inf", "99999999999999999999", "2-", "1x"}) {
    EXPECT_THAT(Reading(bad, integer),
                HasSubstr("m: k=" + std::string(bad) + " is not a whole number from -2 to 3"));
  }
}

TEST_F(SpecReaderTest, ListsNameTheWrongItem) {
  const auto numbers = [](SpecReader& r) { r.Numbers("k", {}, 0, 10); };
  const auto integers = [](SpecReader& r) { r.Integers("k", {}, 0, 10); };
  EXPECT_EQ(Reading("1/2.5/0", numbers), "no error");
  EXPECT_EQ(Reading("1/2/0", integers), "no error");
  EXPECT_THAT(Reading("1/x/3", numbers), HasSubstr("k=1/x/3: 'x' is not a number from 0 to 10"));
  EXPECT_THAT(Reading("1//3", numbers), HasSubstr("'' is not a number"));
  EXPECT_THAT(Reading("1/nan", numbers), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(Reading("1/11", integers), HasSubstr("'11' is not a whole number from 0 to 10"));
  EXPECT_THAT(Reading("1/2.5", integers), HasSubstr("'2.5' is not a whole number"));
  EXPECT_THAT(Reading("-1", integers), HasSubstr("'-1' is not a whole number"));
  EXPECT_THAT(Reading("4294967297", integers), HasSubstr("'4294967297' is not a whole number"));
}

}  // namespace
}  // namespace coppice
