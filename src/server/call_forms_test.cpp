// Calls in forms with tags: GLM's, MiniMax's and Muse Glimmer's.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "server/bare_calls.h"
#include "server/tool_calls_test_support.h"

namespace coppice {
namespace {

const nlohmann::ordered_json kFormTools = nlohmann::ordered_json::parse(R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": "array", "items": {"type": "integer"}}}}}},
  {"type": "function", "function": {"name": "g-h.i"}}
])");

// The same is made of the answer in pieces of every size.
std::string ReadForm(ToolFormat format, std::string_view answer) {
  const AnswerParser parser(format, kFormTools, true);
  const std::string whole = Written(parser, answer, std::max<size_t>(answer.size(), 1));
  for (size_t step = 1; step < answer.size(); step = step < 8 ? step + 1 : 2 * step)
    EXPECT_EQ(Written(parser, answer, step), whole) << "in pieces of " << step << ": " << answer;
  return whole;
}

std::string ArgKeys(std::string_view answer) { return ReadForm(ToolFormat::kArgKeys, answer); }
std::string ArgKeysOf(const std::string& key, const std::string& value) {
  return ArgKeys("<tool_call>f\n<arg_key>" + key + "</arg_key>\n<arg_value>" + value +
                 "</arg_value>\n</tool_call>");
}

TEST(ArgKeyCalls, Whole) {
  EXPECT_EQ(ArgKeysOf("s", "Oslo"), R"(f({"s":"Oslo"})|)");
  EXPECT_EQ(ArgKeysOf("s", "a\n b "), R"(f({"s":"a\n b "})|)");
  EXPECT_EQ(ArgKeysOf("n", "5"), R"(f({"n":5})|)");
  EXPECT_EQ(ArgKeysOf("s", "5"), R"(f({"s":"5"})|)");
  EXPECT_EQ(ArgKeysOf("l", "[1, 2]"), R"(f({"l":[1,2]})|)");
  EXPECT_EQ(ArgKeysOf("s", "</arg_value> in </tool_call>"), R"(f({"s":"</arg_value> in </tool_call>"})|)");
  EXPECT_EQ(
      ArgKeys("Hm.\n<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value><arg_key>n</arg_key><arg_value>1"
              "</arg_value></tool_call>\n<tool_call>g-h.i\n</tool_call>"),
      R"(Hm.|f({"s":"a","n":1})|g-h.i({})|)");
  EXPECT_EQ(ArgKeys("<tool_call>g-h.i</tool_call>"), "g-h.i({})|");
}

TEST(ArgKeyCalls, WhatIsNoneIsText) {
  for (const char* answer :
       {"<tool_call>", "<tool_call>unknown</tool_call>", "<tool_call>f<arg_key>s</arg_key></tool_call>",
        "<tool_call>f<arg_key>s</arg_key><arg_value>a",
        "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value>", "<tool_call>f",
        "<tool_call>f says</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>", "say <tool_cal"})
    EXPECT_EQ(ArgKeys(answer), answer);
}

std::string InvokeOf(const std::string& key, const std::string& value) {
  return ReadForm(ToolFormat::kInvokes, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"" + key +
                                            "\">" + value + "</parameter>\n</invoke>\n</minimax:tool_call>");
}

TEST(InvokeCalls, Whole) {
  EXPECT_EQ(InvokeOf("s", "\nOslo "), R"(f({"s":"\nOslo "})|)");
  EXPECT_EQ(InvokeOf("n", "5"), R"(f({"n":5})|)");
  EXPECT_EQ(
      ReadForm(ToolFormat::kInvokes,
               "Hm.\n<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">a</parameter></invoke>\n"
               "<invoke name=\"g-h.i\"></invoke></minimax:tool_call>\nSo."),
      R"(Hm.|f({"s":"a"})|g-h.i({})|So.)");
  for (const char* answer :
       {"<minimax:tool_call>", "<minimax:tool_call><invoke name=\"z\"></invoke></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"f\"></invoke>", "<invoke name=\"f\"></invoke>"})
    EXPECT_EQ(ReadForm(ToolFormat::kInvokes, answer), answer);
}

const std::string kAtemCall =
    "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"s\">Oslo</atem:parameter>\n"
    "</atem:invoke>\n</atem:function_calls>";
std::string Atem(std::string_view answer) { return ReadForm(ToolFormat::kAtem, answer); }

TEST(AtemCalls, Whole) {
  const std::string call = R"(f({"s":"Oslo"})|)";
  EXPECT_EQ(Atem(" to=f<|message|>" + kAtemCall), call);
  EXPECT_EQ(Atem("<|start|>assistant to=f<|message|>" + kAtemCall + "<|eot|>"), call);
  EXPECT_EQ(Atem(kAtemCall), call);
  EXPECT_EQ(Atem(" to=f<|message|>" + kAtemCall +
                 "<|eom|><|start|>assistant to=g-h.i<|message|>"
                 "<atem:function_calls><atem:invoke name=\"g-h.i\"></atem:invoke></atem:function_calls>"),
            call + "g-h.i({})|");
}

TEST(AtemCalls, WhatIsNoneIsText) {
  for (const std::string answer :
       {" to=nobody<|message|>said", "go to=f and stop", "to=f<|message|>no call", "<|start|>assistant to=f",
        "to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">", "to=f\n<|message|>", "<atem:func"})
    EXPECT_EQ(Atem(answer), answer);
}

}  // namespace
}  // namespace coppice
