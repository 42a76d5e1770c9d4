// Parts and items of three APIs: what is read, what becomes a line, what is left out, what is an error.
#include "server/content_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/errors.h"
#include "server/messages_form.h"
#include "server/responses_form.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Text(const char* content) {
  std::vector<std::string> ignored;
  return TextOfContent(ordered_json::parse(content), "messages", ignored);
}

TEST(ContentParts, TextsLinesAndWhatIsLeftOut) {
  EXPECT_EQ(Text(R"(["a", {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "c"}])"), "a\nb\nc");
  EXPECT_EQ(Text(R"([{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "b"}])"), "b");
  EXPECT_EQ(Text(R"([{"type": "image_url", "image_url": {"url": "x"}}])"),
            "[image_url left out: this server reads text only]");
  EXPECT_EQ(Text(R"([{"type": "document", "title": "T", "source": {"type": "text", "data": "D"}}])"), "T\nD");
  EXPECT_EQ(Text(R"([{"type": "search_result", "title": "T", "source": "S",
                      "content": [{"type": "text", "text": "C"}]}])"),
            "T\nS\nC");
  EXPECT_THAT(Text(R"([{"type": "web_search_tool_result", "content": [{"type": "text", "text": "found"}]}])"),
              "found");
  EXPECT_THAT(Text(R"([{"type": "of_tomorrow"}])"), HasSubstr("of_tomorrow left out"));
  for (const char* bad : {"[1]", "[{}]", "[[]]", "3", R"([{"type": "text"}])"})
    EXPECT_THROW(Text(bad), HttpError) << bad;
}

TEST(ContentParts, AnthropicsToolsAndSystemMessages) {
  const ChatForm form = ChatOfMessages(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "tool_result",
      "tool_use_id": "i", "content": [{"type": "image"}]}]}],
      "tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "any"}})");
  const ordered_json chat = ordered_json::parse(form.body);
  EXPECT_EQ(chat["messages"][1]["role"], "system");
  EXPECT_THAT(chat["messages"][2]["content"].get<std::string>(), HasSubstr("image left out"));
  EXPECT_TRUE(chat["tools"].empty());
  EXPECT_EQ(chat["tool_choice"], "auto");
  EXPECT_THAT(form.ignored, ElementsAre("web_search_20250305", "image", "tool_choice"));
}

TEST(ContentParts, ItemsAndToolsOfResponses) {
  const ChatForm form = ChatOfResponses(R"({"input": [{"role": "user", "content": "a"},
      {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
      {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}]},
      {"type": "item_reference", "id": "i"}, {"type": "of_tomorrow"}],
      "tools": [{"type": "web_search"}, {"type": "namespace", "name": "n",
      "tools": [{"type": "function", "name": "g", "parameters": {}}]}],
      "tool_choice": {"type": "web_search"}})");
  const ordered_json chat = ordered_json::parse(form.body);
  ASSERT_EQ(chat["messages"].size(), 3u);
  EXPECT_EQ(chat["messages"][1]["tool_calls"][0]["function"]["arguments"]["input"], "x");
  EXPECT_EQ(chat["messages"][2]["content"], "o");
  EXPECT_EQ(chat["tools"][0]["function"]["name"], "g");
  EXPECT_EQ(chat["tool_choice"], "auto");
  for (const char* name : {"web_search", "item_reference", "of_tomorrow"})
    EXPECT_THAT(form.ignored, Contains(name));
  for (const char* bad : {R"({"input": ["a", {"type": "function_call", "name": "f"}]})", R"({"input": [3]})",
                          R"({"input": [{"type": "function_call"}]})", R"({"input": "a", "tools": ["x"]})"})
    EXPECT_THROW(ChatOfResponses(bad), HttpError) << bad;
}

TEST(ContentParts, FunctionsOfNamespacesHaveNamesOfTheirOwn) {
  const ChatForm form = ChatOfResponses(R"({"input": [{"role": "user", "content": "a"},
      {"type": "function_call", "call_id": "c", "name": "f", "namespace": "b", "arguments": "{}"},
      {"type": "function_call", "call_id": "d", "name": "f", "namespace": "gone", "arguments": "{}"}],
      "tools": [{"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "f"}, {"type": "custom"}]},
      {"type": "namespace", "name": "b_", "tools": [{"type": "function", "name": "f"}]},
      {"type": "namespace", "name": "b", "tools": [{"type": "function", "name": "f"},
                                                   {"type": "namespace", "name": "inner", "tools": [{}]}]},
      {"type": "namespace", "name": "empty", "tools": []}, {"type": "function", "name": "f"}]})");
  const ordered_json chat = ordered_json::parse(form.body);
  std::vector<std::string> names;
  for (const ordered_json& tool : chat["tools"]) names.push_back(tool["function"]["name"]);
  EXPECT_THAT(names, ElementsAre("a__f", "b_f", "b__f", "f"));
  EXPECT_EQ(form.functions.at("b_f").space, "b_");
  EXPECT_EQ(form.functions.at("b__f").name, "f");
  EXPECT_FALSE(form.functions.contains("f"));
  EXPECT_EQ(chat["messages"][1]["tool_calls"][0]["function"]["name"], "b__f");
  EXPECT_EQ(chat["messages"][1]["tool_calls"][1]["function"]["name"], "f");
  EXPECT_THAT(form.ignored, ElementsAre("custom", "namespace"));
  for (const char* bad :
       {R"({"input": "a", "tools": [{"type": "namespace", "tools": [{"type": "function"}]}]})",
        R"({"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [3]}]})"})
    EXPECT_THROW(ChatOfResponses(bad), HttpError) << bad;
  // A function without a name is refused where all functions are checked.
  const ChatForm nameless = ChatOfResponses(
      R"({"input": "a", "tools": [{"type": "function"}], "tool_choice": {"type": "function", "name": "f"}})");
  EXPECT_THAT(nameless.ignored, ElementsAre("tool_choice"));
}

TEST(ContentParts, NoMoreThan32Names) {
  std::vector<std::string> ignored;
  for (int i = 0; i < 100; ++i) AddIgnored(std::string(100, 'x') + std::to_string(i), ignored);
  EXPECT_THAT(ignored, ElementsAre(std::string(64, 'x')));
  for (int i = 0; i < 100; ++i) AddIgnored(std::to_string(i), ignored);
  EXPECT_EQ(ignored.size(), kMaxIgnored);
}

}  // namespace
}  // namespace coppice
