#include "server/bare_calls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "server/tool_calls_test_support.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

const ordered_json& Tools() {
  static const ordered_json kTools = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}},
    {"type": "function", "function": {"name": "g"}}])");
  return kTools;
}

std::string WrittenBare(ToolFormat format, std::string_view answer, size_t step, bool bare = true) {
  return Written(AnswerParser(format, Tools(), bare), answer, step);
}

constexpr ToolFormat kFormats[] = {ToolFormat::kHermes, ToolFormat::kLlama, ToolFormat::kMistral};

TEST(BareCalls, AreCallsInEveryTemplatesForm) {
  constexpr const char* kOne = R"(f({"a":1})|)";
  constexpr const char* kTwo = R"(f({"a":1})|g({})|)";
  const std::pair<const char*, const char*> cases[] = {
      {R"({"name": "f", "arguments": {"a": 1}})", kOne},
      {"\n {\"arguments\": {\"a\": 1}, \"name\": \"f\"}\n", kOne},
      {R"({"name": "f", "parameters": {"a": 1}})", kOne},
      {R"({"name": "f", "arguments": "{\"a\": 1}"})", kOne},
      {R"({"function": "f", "arguments": {"a": 1}})", kOne},
      {R"({"tool": "f", "args": {"a": 1}})", kOne},
      {R"({"type": "function", "name": "f", "parameters": {"a": 1}})", kOne},
      {R"({"type": "function", "function": {"name": "f", "arguments": {"a": 1}}})", kOne},
      {R"({"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
                          {"name": "g", "arguments": {}}]})",
       kTwo},
      {R"({"function_call": {"name": "f", "arguments": {"a": 1}}})", kOne},
      {R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])", kTwo},
      {"{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", \"arguments\": {}}", kTwo},
      {"```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```", kOne},
      {"```\n[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]\n```\n", kOne},
      {"```json\r\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}", kOne},
      {"```{\"name\": \"f\", \"arguments\": {\"a\": 1}}```", kOne},
      {"```xml\n<tools>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tools>\n```", kOne},
      {"```json\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n```", kOne},
      {"<tools>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", \"arguments\": "
       "{}}\n</tools>",
       kTwo},
      {"<tools>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tools>\n<tools>{\"name\": \"g\", \"arguments\": "
       "{}}",
       kTwo},
      {"<function_call> {\"name\": \"f\", \"arguments\": {\"a\": 1}} </function_call>", kOne},
      {"<function=f>{\"a\": 1}</function>", kOne},
      {"<function=f>{\"a\": 1}</function><function=g>{}</function>", kTwo},
  };
  for (const auto& [answer, expected] : cases) {
    for (const ToolFormat format : kFormats) {
      for (const size_t step : {1, 3, 1000}) {
        // In Llama's own form, arguments are as the model wrote them.
        std::string written = WrittenBare(format, answer, step);
        std::erase(written, ' ');
        EXPECT_EQ(written, expected) << answer;
      }
    }
  }
}

TEST(BareCalls, EverythingElseIsTextAsItWas) {
  for (
      const char* answer : {
          R"({"name": "h", "arguments": {"a": 1}})",
          R"({"name": "f"})",
          R"({"name": "f", "arguments": [1]})",
          R"({"name": "f", "arguments": "later"})",
          R"({"name": "f", "name": "f", "arguments": {}})",
          R"({"name": ["f"], "arguments": {}})",
          R"({"arguments": {"name": "f"}})",
          R"({"answer": {"name": "f", "arguments": {}}})",
          R"({"name": "f", "arguments": {}} is what I would call)",
          R"(I call {"name": "f", "arguments": {}})",
          R"([{"name": "g", "arguments": {}}, 3])",
          R"([{"name": "g", "arguments": {}}, {"name": "h", "arguments": {}}])",
          "[]",
          "[1, 2]",
          "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\nDone.",
          "```python\n{\"name\": \"f\", \"arguments\": {}}\n```",
          "```json\n```",
          "<tools>{\"name\": \"f\", \"arguments\": {}}</tool>",
          "<b>{\"name\": \"f\", \"arguments\": {}}</b>",
          "<function=h>{}</function>",
          "<function=f>[]</function>",
          R"({"name": "f", "arguments": {"a": 1)",
          // The function's definition, not a call of it.
          R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}})",
          R"({"name": "f", "parameters": {"type": "object", "properties": {}}})",
          "",
          " ",
          "{",
          "```",
          "<",
          "{\"name\": \"f\",}",
      }) {
    for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kMistral}) {
      for (const size_t step : {1, 3, 1000}) EXPECT_EQ(WrittenBare(format, answer, step), answer);
    }
  }
}

TEST(BareCalls, JsonThatTheRequestAskedForIsText) {
  const char* answer = R"({"name": "f", "arguments": {"a": 1}})";
  EXPECT_EQ(WrittenBare(ToolFormat::kHermes, answer, 5, false), answer);
}

TEST(BareCalls, TextIsHeldBackOnlyWhileItCanBecomeACall) {
  const std::pair<const char*, size_t> released[] = {
      // An answer, and the byte at which it can be no call any more.
      {"Hello", 1},
      {"{\"city\": 1}", 7},
      {"{\"name\": \"h\", ", 12},
      {"{a", 2},
      {"[1]", 2},
      {"```python", 4},
      {"<div>", 2},
      {"{\"name\": \"f\", \"arguments\": {}}x", 31},
      {"<function=h>", 11}};
  for (const auto& [answer, at] : released) {
    AnswerParser parser(ToolFormat::kHermes, Tools(), true);
    const std::string_view text = answer;
    EXPECT_TRUE(parser.Push(text.substr(0, at - 1)).empty()) << answer;
    EXPECT_FALSE(parser.Push(text.substr(at - 1, 1)).empty()) << answer;
  }
}

// Whatever a model writes: no text is lost where there is no call, and the cuts do not matter.
TEST(BareCalls, AnyTextEndsTheSameWay) {
  const char* pieces[] = {"<tool_call>",
                          "</tool_call>",
                          "{\"name\":\"f\",\"arguments\":{}}",
                          "{",
                          "}",
                          "\"",
                          " ",
                          "\n",
                          "```",
                          "```json\n",
                          "<tools>",
                          "</tools>",
                          "[",
                          "]",
                          ",",
                          "name",
                          ":",
                          "\\",
                          "<function=f>",
                          "</function>",
                          "{\"name\":\"h\",\"arguments\":{}}",
                          "[TOOL_CALLS]"};
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 9; n > 0; --n) text += pieces[random() % std::size(pieces)];
    for (const ToolFormat format : kFormats) {
      const std::string whole = WrittenBare(format, text, 1000);
      EXPECT_EQ(WrittenBare(format, text, 1), whole) << text;
      if (whole.find("(") == whole.npos) {
        EXPECT_EQ(whole, text);
      }
    }
  }
}

TEST(BareCalls, ADeepCallIsText) {
  const std::string deep =
      R"({"name":"f","arguments":{"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}}";
  EXPECT_EQ(WrittenBare(ToolFormat::kHermes, deep, 4096), deep);
}

// An object in Llama's form is a call as soon as its arguments begin; in other forms, only at the end.
TEST(BareCalls, LlamasOwnAreToldAsTheyAreWritten) {
  const std::string_view begin = " {\"name\": \"f\", \"parameters\": ";
  for (const ToolFormat format : kFormats) {
    AnswerParser parser(format, Tools(), true);
    EXPECT_TRUE(parser.Push(begin).empty());
    const std::vector<AnswerPart> parts = parser.Push("{\"a");
    ASSERT_EQ(parts.size(), format == ToolFormat::kLlama ? 2u : 0u);
    if (parts.empty()) continue;
    EXPECT_EQ(parts[0].text + parts[1].text, "f{\"a");
    EXPECT_EQ(parser.Push("\": 1").at(0).text, "\": 1");
  }
}

}  // namespace
}  // namespace coppice
