#include "formats/json.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>

#include "base/limits.h"
#include "formats/test_bytes.h"

namespace coppice {
namespace {

using testing::HasSubstr;

std::string Refusal(std::string_view text) {
  return ErrorOf([&] { ParseJson(text, "x.json"); });
}

TEST(Json, ReadsEveryKindOfValue) {
  const auto j = ParseJson(
      R"( {"a": [1, -2, 2.5, 18446744073709551615], "b": {"c": "\u00e9\n"}, "d": [true, null]} )", "x.json");
  EXPECT_EQ(j["a"][0].get<int>(), 1);
  EXPECT_EQ(j["a"][1].get<int>(), -2);
  EXPECT_EQ(j["a"][2].get<double>(), 2.5);
  EXPECT_EQ(j["a"][3].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(j["b"]["c"].get<std::string>(), "\xC3\xA9\n");
  EXPECT_TRUE(j["d"][0].get<bool>());
  EXPECT_TRUE(j["d"][1].is_null());
  EXPECT_EQ(j.dump(), R"({"a":[1,-2,2.5,18446744073709551615],"b":{"c":"é\n"},"d":[true,null]})");
  EXPECT_EQ(ParseJson("7", "x").get<int>(), 7);
  EXPECT_TRUE(ParseJson("[]", "x").empty());
}

TEST(Json, NamesTheSourceAndThePlaceOfAnError) {
  EXPECT_THAT(Refusal("{\"a\": }"), HasSubstr("[json] x.json: parse error at line 1, column 7"));
}

TEST(Json, RefusesNestingBeyondTheLimit) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Refusal(nested(limits::kMaxJsonDepth)), "no error");
  EXPECT_THAT(Refusal(nested(limits::kMaxJsonDepth + 1)), HasSubstr("deep"));
  EXPECT_THAT(Refusal(std::string(1'000'000, '[')), HasSubstr("deep"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(Refusal(objects), HasSubstr("deep"));
}

TEST(Json, RefusesDuplicateKeysOfOneObjectOnly) {
  EXPECT_THAT(Refusal(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(Refusal(R"([{"x": {"a": 1, "\u0061": 2}}])"), HasSubstr("duplicate key \"a\""));
  EXPECT_EQ(Refusal(R"({"a": {"a": 1}, "b": {"a": 2}})"), "no error");
  EXPECT_THAT(Refusal(R"({"a\nb": 1, "a\nb": 3})"), HasSubstr("duplicate key \"a\\nb\""));
}

TEST(Json, RefusesTrailingBytes) {
  EXPECT_THAT(Refusal("{} x"), HasSubstr("parse error"));
  EXPECT_THAT(Refusal("{}{}"), HasSubstr("parse error"));
  EXPECT_THAT(Refusal(std::string_view("{}\0{", 4)), HasSubstr("zero byte at offset 2"));
  EXPECT_EQ(Refusal("{} \n\t"), "no error");
}

TEST(Json, RefusesNumbersThatOverflowAndThoseThatJsonLacks) {
  EXPECT_THAT(Refusal("[1e400]"), HasSubstr("1e400"));
  EXPECT_THAT(Refusal("[-1e400]"), HasSubstr("1e400"));
  EXPECT_NE(Refusal("[NaN]"), "no error");
  EXPECT_NE(Refusal("[Infinity]"), "no error");
  EXPECT_NE(Refusal("[01]"), "no error");
  EXPECT_EQ(Refusal("[1e300, 1e-400]"), "no error");
}

TEST(Json, RefusesBadTextInOneShortLine) {
  EXPECT_NE(Refusal(""), "no error");
  EXPECT_NE(Refusal("[\"\xff\"]"), "no error");
  EXPECT_NE(Refusal("[\"\\ud800\"]"), "no error");
  EXPECT_NE(Refusal("[1,]"), "no error");
  EXPECT_LT(Refusal("[\"" + std::string(100'000, 'x') + "\n\"]").size(), 400u);
}

TEST(Json, ReadsAFileAndNamesOneThatIsMissingOrBroken) {
  const TempFolder folder;
  EXPECT_EQ(ReadJsonFile(folder.Write("a.json", "{\"k\": 3}"))["k"].get<int>(), 3);
  EXPECT_THAT(ErrorOf([&] { ReadJsonFile(folder.Path("b.json")); }), HasSubstr("b.json"));
  EXPECT_THAT(ErrorOf([&] { ReadJsonFile(folder.Write("c.json", "{")); }), HasSubstr("c.json: parse error"));
  EXPECT_THAT(ErrorOf([&] { ReadJsonFile(folder.Write("d.json", "")); }), HasSubstr("d.json: parse error"));
}

TEST(Json, ReadsPythonsNumbersThatJsonLacks) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "a.json", R"({"a": [0.0, Infinity, -Infinity], "NaN": NaN, "b": "\"NaN\" \\", "c": [1, NaN]})");
  const nlohmann::json read = ReadPythonJsonFile(path);
  const auto number = [](const char* name) { return nlohmann::json{{"__float__", name}}; };
  EXPECT_EQ(read["a"], nlohmann::json::array({0.0, number("Infinity"), number("-Infinity")}));
  EXPECT_EQ(read["NaN"], number("NaN"));
  EXPECT_EQ(read["b"], "\"NaN\" \\");
  EXPECT_EQ(read["c"][1], number("NaN"));
  EXPECT_THAT(ErrorOf([&] { ReadJsonFile(path); }), HasSubstr("a.json: parse error"));
  for (const char* bad :
       {"{\"a\": 1Infinity}", "{\"a\": Infinity0}", "{\"a\": Nan}", "{NaN: 1}", "\"NaN", "\""}) {
    const std::string broken = folder.Write("b.json", bad);
    EXPECT_THAT(ErrorOf([&] { ReadPythonJsonFile(broken); }), HasSubstr("b.json: parse error")) << bad;
  }
}

TEST(Json, CountsValues) {
  EXPECT_EQ(ParseJson("[1, {\"a\": []}]", "x", 5 + 1 + 5 + 11).size(), 2u);
  EXPECT_THROW(ParseJson("[1, {\"a\": []}]", "x", 5 + 1 + 5 + 10), Error);
  EXPECT_THROW(ParseJson("[\"\"]", "x", 9), Error);
}

TEST(Json, ReadsOneMemberInItsOrder) {
  const std::string text =
      R"({"x": {"b": [{"m": 1}], "a": [[], {"m": 2}]}, "m": [{"z": 1, "a": {"x": [], "m": "t"}}, [null, 7, 2.5]],)"
      R"( "y": [{"m": 3}, "s", {}]})";
  const nlohmann::json checked = ParseJson(text, "x");
  const auto member = [&](const char* name) { return OrderedMember(text, checked, name, "x").dump(); };
  EXPECT_EQ(member("m"), R"([{"z":1,"a":{"x":[],"m":"t"}},[null,7,2.5]])");
  EXPECT_EQ(member("x"), R"({"b":[{"m":1}],"a":[[],{"m":2}]})");
  EXPECT_EQ(member("y"), R"([{"m":3},"s",{}])");
  EXPECT_EQ(member("z"), "null");
  EXPECT_EQ(OrderedMember("[{\"m\": 1}]", ParseJson("[{\"m\": 1}]", "x"), "m", "x").dump(), "null");
}

// Those of models and tokenizers are read so. 20 MB of empty lists would take 320 MB.
TEST(Json, FilesHaveALimitOnValues) {
  std::string text = "[[]";
  for (uint64_t values = 10; values <= limits::kMaxJsonValues; values += 5) text += ",[]";
  const TempFolder folder;
  const std::string path = folder.Write("tokenizer.json", text + "]");
  EXPECT_LT(text.size(), limits::kMaxJsonFileBytes / 10);
  EXPECT_THAT(ErrorOf([&] { ReadJsonFile(path); }), HasSubstr("tokenizer.json: holds too many values"));
}

#ifndef __SANITIZE_ADDRESS__  // its shadow memory needs address space at every moment
// Destroys a value when no more memory is available. Without OwnedJson the library's destructor would
// allocate, and the process would die in std::terminate.
[[noreturn]] void EndWithoutMemory() {
  {
    OwnedJson<nlohmann::json> value = nlohmann::json::array();
    for (int i = 0; i < 1'000'000; ++i) value->push_back(i);
    (*value)[7] = nlohmann::json::parse(R"({"a": [[1, 2], {"b": [3]}]})");
    const rlimit none{1, 1};
    if (setrlimit(RLIMIT_AS, &none) != 0) std::_Exit(2);
  }
  std::_Exit(0);
}

TEST(JsonDeathTest, AnOwnedValueEndsWithoutMemory) {
  EXPECT_EXIT(EndWithoutMemory(), testing::ExitedWithCode(0), "");
}
#endif

TEST(Json, OwnedValuesCopyMoveAndAssign) {
  const OwnedJson<nlohmann::json> one = ParseJson(R"({"a": [1, {"b": 2}]})", "x");
  OwnedJson<nlohmann::json> two = one;
  EXPECT_EQ(two->dump(), one->dump());
  const OwnedJson<nlohmann::json> three = std::move(two);
  EXPECT_EQ(three->dump(), one->dump());
  two = nlohmann::json::array({1});
  two = one;
  EXPECT_EQ((*two)["a"][1]["b"], 2);
  EXPECT_EQ(two.Take().dump(), one->dump());
  EXPECT_TRUE(two->is_null());
}

}  // namespace
}  // namespace coppice
