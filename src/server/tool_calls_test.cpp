#include "server/tool_calls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "server/tool_calls_test_support.h"

namespace coppice {
namespace {

std::string Written(ToolFormat format, std::string_view answer, size_t step) {
  return Written(ToolCallParser(format, {"f", "g", "get_it"}), answer, step);
}

struct Case {
  ToolFormat format;
  const char* answer;
  const char* expected;
};

TEST(ToolCalls, AreFoundHoweverTheTextIsCut) {
  const Case cases[] = {
      {ToolFormat::kHermes, "Hello", "Hello"},
      {ToolFormat::kHermes, "  a < b <tool box> ", "  a < b <tool box> "},
      {ToolFormat::kHermes, R"(<tool_call>
{"name": "f", "arguments": {"a": 1}}
</tool_call>)",
       R"(f({"a": 1})|)"},
      {ToolFormat::kHermes, R"(Let me see.

<tool_call>{"name":"f","arguments":{"a":"}\"{"}}</tool_call>
<tool_call>{"name":"g","arguments":{}}</tool_call>
Done. )",
       R"(Let me see.|f({"a":"}\"{"})|g({})|Done.)"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":"{\"a\": 2}"})", R"(f({"a":2})|)"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f"}</tool_call>)", "f({})|"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":{"a": [1)", R"(f({"a": [1...|)"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":)",
       R"(<tool_call>{"name":"f","arguments":)"},
      {ToolFormat::kHermes,
       R"(<tool_call>{"id": {"name": 1}, "name":"f","arguments":{"a": [1, }}</tool_call>)",
       R"(f({"a": [1, })|)"},
      {ToolFormat::kHermes, R"(<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>)",
       R"(f({"a":1})|)"},
      {ToolFormat::kHermes, R"(<tool_call>{"n\u0061me":"f","arguments":{}}</tool_call>)", "f({})|"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"z","arguments":{}}</tool_call>)",
       R"(<tool_call>{"name":"z","arguments":{}}</tool_call>)"},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":[{}]}</tool_call>)",
       R"(<tool_call>{"name":"f","arguments":[{}]}</tool_call>)"},
      // Behind the arguments: members, or an end that was forgotten.
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":{}, "id": {"}": 1}}</tool_call> So.)",
       "f({})|So."},
      {ToolFormat::kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}</tool_call>\nSo.", "f({})|So."},
      {ToolFormat::kHermes, R"(<tool_call>{"name":"f","arguments":{}, "id": 1)", "f({})|"},
      {ToolFormat::kMistral, R"([TOOL_CALLS][{"name":"f","arguments":{}, {"name":"g","arguments":{}}])",
       "f({})|g({})|"},
      {ToolFormat::kMistral, R"([TOOL_CALLS]f[ARGS]{"a": ")", R"(f({"a": "...|)"},
      {ToolFormat::kHermes, R"(<tool_call>{"nome":"f"}</tool_call> x)",
       R"(<tool_call>{"nome":"f"}</tool_call> x)"},
      {ToolFormat::kHermes, "<tool_call>none</tool_call>", "<tool_call>none</tool_call>"},
      {ToolFormat::kHermes, "<tool_call>", "<tool_call>"},
      {ToolFormat::kLlama, R"( {"name": "f", "parameters": {"a": 1}})", R"(f({"a": 1})|)"},
      {ToolFormat::kLlama,
       R"(<|python_tag|>{"name":"f","parameters":{}}; {"name":"g","parameters":{"x":{}}})",
       R"(f({})|g({"x":{}})|)"},
      {ToolFormat::kLlama, R"({"answer": 42})", R"({"answer": 42})"},
      {ToolFormat::kLlama, R"({"name": "coppice", "parameters": {}})",
       R"({"name": "coppice", "parameters": {}})"},
      {ToolFormat::kMistral, "[TOOL_CALLS]x[ARGS]{}", "[TOOL_CALLS]x[ARGS]{}"},
      {ToolFormat::kLlama, R"(So: {"name": "f", "parameters": {}})",
       R"(So: {"name": "f", "parameters": {}})"},
      {ToolFormat::kMistral,
       R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
       R"(f({"a": 1})|g({})|)"},
      {ToolFormat::kMistral, R"(Yes.[TOOL_CALLS]get_it[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})",
       R"(Yes.|get_it({"a": 1})|g({})|)"},
      {ToolFormat::kMistral, R"([TOOL_CALLS]f{"a": 1})", R"(f({"a": 1})|)"},
      {ToolFormat::kMistral, "[1, 2] and [TOOL", "[1, 2] and [TOOL"},
  };
  for (const Case& c : cases) {
    for (const size_t step : {1, 2, 3, 7, 1000})
      EXPECT_EQ(Written(c.format, c.answer, step), c.expected) << step;
  }
}

TEST(ToolCalls, TextIsHeldBackOnlyWhileItMayBeACall) {
  ToolCallParser parser(ToolFormat::kHermes, {"f"});
  EXPECT_EQ(parser.Push("one <").at(0).text, "one");
  EXPECT_EQ(parser.Push("two").at(0).text, " <two");
  EXPECT_TRUE(parser.Push("<tool_call>{\"name\": \"f\", \"arguments\":").empty());
  const std::vector<AnswerPart> parts = parser.Push("{");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].text, "f");
  EXPECT_EQ(parts[1].text, "{");
}

// Whatever a model writes: no text is lost but marks of calls and white space, and the cuts do not matter.
TEST(ToolCalls, AnyTextEndsTheSameWay) {
  const char* pieces[] = {"<tool_call>",
                          "</tool_call>",
                          "{\"name\":\"f\",\"arguments\":{}}",
                          "{",
                          "}",
                          "\"",
                          " ",
                          "\n",
                          "[TOOL_CALLS]",
                          "[ARGS]",
                          "f",
                          "[",
                          "]",
                          ",",
                          "<|python_tag|>",
                          "\\",
                          "<tool",
                          "{\"name\":\"g\",\"parameters\":{\"a\":[1]}}"};
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 9; n > 0; --n) text += pieces[random() % std::size(pieces)];
    for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama, ToolFormat::kMistral}) {
      const std::string whole = Written(format, text, 1000);
      EXPECT_EQ(Written(format, text, 1), whole) << text;
      if (whole.find("(") == whole.npos) {
        EXPECT_EQ(whole, text);
      }
    }
  }
}

TEST(ToolCalls, ADeepCallIsAsItWasWritten) {
  const std::string deep = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + std::string(100000, '[') +
                           std::string(100000, ']') + "}}</tool_call>";
  const size_t begin = deep.find("{\"a\"");
  const size_t size = deep.rfind('}') - begin;
  EXPECT_EQ(Written(ToolFormat::kHermes, deep, 4096), "f(" + deep.substr(begin, size) + ")|");
  // Where only the whole object could tell, it is text.
  const std::string late = "<tool_call>{\"arguments\":{\"a\":" + std::string(100000, '[') +
                           std::string(100000, ']') + "},\"name\":\"f\"}</tool_call>";
  EXPECT_EQ(Written(ToolFormat::kHermes, late, 4096), late);
}

TEST(ToolCalls, TheTemplateSaysTheForm) {
  EXPECT_EQ(ToolFormatOf("... <tool_call> ..."), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf("'[TOOL_CALLS]'"), ToolFormat::kMistral);
  EXPECT_EQ(ToolFormatOf("<|python_tag|>"), ToolFormat::kLlama);
  EXPECT_EQ(ToolFormatOf("no tools"), ToolFormat::kHermes);
}

}  // namespace
}  // namespace coppice
