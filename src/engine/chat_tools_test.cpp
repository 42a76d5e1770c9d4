// Definitions, calls and results of functions in a chat, with a tokenizer of one token per byte.
#include "engine/chat_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "byte_tokenizer.h"

namespace coppice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

const ordered_json kTools = ordered_json::parse(
    R"([{"type": "function", "function": {"name": "weather", "description": "of a <s>place",
         "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}])");

const json kMessages = json::parse(R"([
    {"role": "user", "content": "Weather in Ulm?"},
    {"role": "assistant", "content": null,
     "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"place\": \"Ulm\", \"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "name": "weather", "content": "rain</tool>"},
    {"role": "user", "content": "Thanks. And in Bonn?"}])");

const std::string kKnowsTools =
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}"
    "<call {{ c.function.name }} {{ c.function.arguments | tojson }} {{ c.id }}>{% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }} {{ m.name }}){% endif %}\n{% endfor %}";

TEST(ChatTools, ATemplateThatKnowsThemGetsThemInOrder) {
  const ByteTokenizer tokenizer(kKnowsTools);
  const ChatOptions options{.add_special = false, .tools = kTools};
  EXPECT_EQ(RenderChat(ParseMessages(kMessages, "messages"), tokenizer, options),
            "<tools>{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"of a "
            "<s>place\", "
            "\"parameters\": {\"type\": \"object\", \"properties\": {\"place\": {\"type\": "
            "\"string\"}}}}}</tools>\n"
            "[user]Weather in Ulm?[assistant]<call weather {\"place\": \"Ulm\", \"a\": 1} 1>"
            "[tool]rain</tool>(1 weather)[user]Thanks. And in Bonn?");
}

TEST(ChatTools, DefinitionsAreProtectedAndMakeNoControlTokens) {
  const ByteTokenizer tokenizer(kKnowsTools);
  const ChatOptions options{.add_special = false, .tools = kTools};
  const ChatPrompt prompt = EncodeChat(ParseMessages(kMessages, "messages"), tokenizer, options);
  EXPECT_EQ(std::ranges::count(prompt.tokens, 256), 0);
  ASSERT_EQ(prompt.protected_spans.size(), 1u);
  const PositionSpan span = prompt.protected_spans[0];
  const std::string text = tokenizer.Decode(prompt.tokens, true);
  EXPECT_EQ(span.begin, 0);
  EXPECT_EQ(text.substr(0, static_cast<size_t>(span.end)), text.substr(0, text.find("</tools>") + 9));
}

TEST(ChatTools, ATemplateThatDoesNotGetsThemAsText) {
  const ByteTokenizer tokenizer("{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}");
  const std::vector<ChatMessage> messages = ParseMessages(kMessages, "messages");
  const std::string text = RenderChat(messages, tokenizer, {.add_special = false, .tools = kTools});
  EXPECT_TRUE(text.starts_with("[system]# Tools\n")) << text;
  EXPECT_THAT(text, HasSubstr("<tools>\n{\"type\":\"function\",\"function\":{\"name\":\"weather\""));
  EXPECT_THAT(text, HasSubstr("[assistant]<tool_call>\n{\"name\":\"weather\",\"arguments\":{\"place\":"
                              "\"Ulm\",\"a\":1}}\n</tool_call>\n"));
  EXPECT_THAT(text, HasSubstr("[user]<tool_response>\nrain</tool>\n</tool_response>\n"));
  const ChatPrompt prompt = EncodeChat(messages, tokenizer, {.add_special = false, .tools = kTools});
  EXPECT_EQ(prompt.protected_spans.size(), 1u);
  EXPECT_EQ(std::ranges::count(prompt.tokens, 256), 0);
}

TEST(ChatTools, AnAnswerMayBeBegun) {
  const ByteTokenizer tokenizer(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</end>{% endfor %}[assistant]");
  const std::vector<ChatMessage> messages = ParseMessages(
      json::parse(R"([{"role": "user", "content": "Say so"}, {"role": "assistant", "content": " So "}])"),
      "m");
  ChatOptions options{.add_special = false, .continue_final_message = true};
  EXPECT_EQ(RenderChat(messages, tokenizer, options), "[user]Say so</end>[assistant]So");
  const ChatPrompt prompt = EncodeChat(messages, tokenizer, options);
  EXPECT_EQ(tokenizer.Decode(prompt.tokens, true), "[user]Say so</end>[assistant]So");
  ASSERT_EQ(prompt.question.size(), 1u);
  EXPECT_EQ(prompt.question[0].begin, 6);
  const ByteTokenizer silent("{{ messages[0].content }}");
  EXPECT_THROW(RenderChat(messages, silent, {.continue_final_message = true}), Error);
}

// A begun answer of white space alone left no place for the marks.
TEST(ChatTools, ABegunAnswerMayBeBlank) {
  for (const char* blank : {"", " ", " \\n\\t "}) {
    const std::string list = R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": ")";
    const std::vector<ChatMessage> messages = ParseMessages(json::parse(list + blank + "\"}]"), "m");
    const ByteTokenizer tokenizer("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}");
    EXPECT_EQ(RenderChat(messages, tokenizer, {.continue_final_message = true}), "[user]x[assistant]");
  }
}

TEST(ChatTools, BadOnesAreRefused) {
  const auto error = [](const char* tools) -> std::string {
    try {
      CheckTools(ordered_json::parse(tools), "tools");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(R"([{"type": "function", "function": {"name": "f"}}])"), "");
  EXPECT_NE(error("{}"), "");
  EXPECT_NE(error(R"([{"type": "web", "function": {"name": "f"}}])"), "");
  EXPECT_NE(error(R"([{"type": "function", "function": {"name": "f g"}}])"), "");
  EXPECT_NE(error(R"([{"type": "function", "function": {"name": "f", "parameters": 3}}])"), "");
  EXPECT_NE(error(R"([{"type": "function"}])"), "");
  for (const char* calls :
       {"3", "[3]", R"([{"function": {"name": ""}}])", R"([{"function": {"name": "f", "arguments": 3}}])"}) {
    EXPECT_THROW(ParseToolCalls(json::parse(calls), 1, "messages"), Error) << calls;
  }
  // Arguments that are no object, or too wide for an ordered one, stay text.
  EXPECT_TRUE(ParseToolCalls(json::parse(R"([{"function": {"name": "f", "arguments": "no"}}])"), 1,
                             "m")[0]["function"]["arguments"]
                  .is_string());
  json wide = json::object();
  for (int i = 0; i < 2000; ++i) wide[std::to_string(i)] = i;
  const json calls = {{{"function", {{"name", "f"}, {"arguments", wide.dump()}}}}};
  EXPECT_TRUE(ParseToolCalls(calls, 1, "m")[0]["function"]["arguments"].is_string());
}

}  // namespace
}  // namespace coppice
