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

TEST(ParseSpec, HasNoControlCharacters) {
  for (const std::string text : {"lazy\nllm", "ftp:eta=\x1b[31m", "a:b='\r'", "\x7f"})
    EXPECT_THAT(ErrorOf([&] { ParseSpec(text); }), testing::HasSubstr("is a control character")) << text;
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
    EXPECT_THAT(message, HasSubstr(std::string("'") + spec + "': "));
  }
}

}  // namespace
}  // namespace coppice
