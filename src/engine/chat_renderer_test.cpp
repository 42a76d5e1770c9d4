// What a chat template gets of the messages, and how messages are joined where it refuses them.
#include "engine/chat_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "byte_tokenizer.h"
#include "engine/chat_prompt.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kShow = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
const std::string kRefusesSecondSystem =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message "
    "must be at the beginning.') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>";
// Gemma 2's demands.
const std::string kAlternates =
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles "
    "must alternate') }}{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";

std::string Rendered(const std::string& chat_template, const char* messages,
                     const ChatOptions& options = {}) {
  return RenderChat(ParseMessages(ordered_json::parse(messages), "messages"), ByteTokenizer(chat_template),
                    options);
}

TEST(ChatRenderer, EveryMemberAsItWasSent) {
  EXPECT_EQ(Rendered("{% for m in messages %}{{ m | tojson }}{% endfor %}",
                     R"([{"x": {"b": 1, "a": null}, "role": "user", "protect": true, "refusal": null,
                          "content": "q", "annotations": []}])"),
            R"({"x": {"b": 1, "a": null}, "role": "user", "content": "q", "annotations": []})");
  const char* reasoned = R"([{"role": "assistant", "content": "a", "reasoning": "why"}])";
  EXPECT_EQ(Rendered("{{ messages[0].reasoning_content }} {{ messages[0].thinking }}", reasoned), "why why");
}

// Ministral's template knows no other place of a message's reasoning.
TEST(ChatRenderer, ReasoningInPartsOfTheContent) {
  const std::string parts =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}"
      "{% if b['type'] == 'text' %}{{ b['text'] }}{% elif b['type'] == 'thinking' %}"
      "{{ '[THINK]' + b['thinking'] + '[/THINK]' }}{% endif %}{% endfor %}{% endif %}|{% endfor %}";
  const char* chat = R"([{"role": "user", "content": "q"},
                         {"role": "assistant", "content": "a", "reasoning": "why"},
                         {"role": "user", "content": "q", "reasoning_content": "no place"},
                         {"role": "assistant", "content": "", "reasoning_content": "so"},
                         {"role": "assistant", "content": "b", "reasoning_content": ""}])";
  EXPECT_EQ(Rendered(parts, chat), "q|[THINK]why[/THINK]a|q|[THINK]so[/THINK]|b|");
  // A template that also reads the member gets the text as it was sent.
  EXPECT_EQ(Rendered(parts + "{# m.reasoning_content #}", chat), "q|a|q||b|");
  EXPECT_EQ(Rendered("{# tool_calls b == 'thinking' #}{{ messages[0].content | tojson }}",
                     R"([{"role": "assistant", "content": null, "reasoning_content": "r",
                          "tool_calls": [{"function": {"name": "f"}}]}])"),
            R"([{"type": "thinking", "thinking": "r"}])");
  const std::string goes_on = Rendered(parts, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "I s", "reasoning_content": "why"}])",
                                       {.continue_final_message = true});
  EXPECT_EQ(goes_on, "q|[THINK]why[/THINK]I s");
}

TEST(ChatRenderer, ContentOfNull) {
  const char* call =
      R"([{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}])";
  const std::string is_defined = "{# tool_calls #}{{ messages[0].content is defined }}";
  EXPECT_EQ(Rendered(is_defined, call), "False");
  EXPECT_EQ(Rendered(is_defined, R"([{"role": "user", "content": null}])"), "False");
  EXPECT_EQ(Rendered(is_defined, R"([{"role": "user", "content": ""}])"), "True");
  // One that needs a text gets an empty one.
  EXPECT_EQ(Rendered("{# tool_calls #}{{ '<' + messages[0].content + '>' }}", call), "<>");
}

TEST(ChatRenderer, ArgumentsAsTemplatesWantThem) {
  const std::string shows =
      "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}";
  for (const auto& [sent, seen] :
       {std::pair(R"("")", "{}"),
        {"\"  \"", "{}"},
        {"null", "{}"},
        {R"("null")", "{}"},
        {R"("{}")", "{}"},
        {R"({"b": 1, "a": {"d": 2, "c": 3}})", R"({"b": 1, "a": {"d": 2, "c": 3}})"},
        {R"("{\"b\": 1, \"a\": 2}")", R"({"b": 1, "a": 2})"},
        {R"("text")", R"("text")"}}) {
    EXPECT_EQ(Rendered(shows, fmt::format(R"([{{"role": "assistant", "content": "", "tool_calls":
        [{{"function": {{"name": "f", "arguments": {}}}}}]}}])",
                                          sent)
                                  .c_str()),
              seen)
        << sent;
  }
}

// As continue_final_message of transformers: what the template keeps stays, what it trims goes.
TEST(ChatRenderer, WhiteSpaceOfABegunAnswer) {
  const ChatOptions options{.continue_final_message = true};
  const char* begun =
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "```json\n  "}])";
  EXPECT_EQ(Rendered(std::string(kShow) + "</end>", begun, options), "[user]q[assistant]```json\n  ");
  EXPECT_EQ(Rendered("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</end>{% endfor %}", begun,
                     options),
            "[user]q</end>[assistant]```json");
  EXPECT_EQ(Rendered(kShow, R"([{"role": "assistant", "content": " \n"}])", options), "[assistant] \n");
}

TEST(ChatRenderer, LaterSystemMessagesJoinTheFirst) {
  EXPECT_EQ(Rendered(kRefusesSecondSystem, R"([{"role": "system", "content": "S"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "developer", "content": "S2"}, {"role": "user", "content": "q2"}])"),
            "<|system|>S\n\nS2<|user|>q<|assistant|>a<|user|>q2<|assistant|>");
  // A template that takes them gets them where they are.
  EXPECT_EQ(Rendered(kShow, R"([{"role": "user", "content": "q"}, {"role": "system", "content": "S"}])"),
            "[user]q[system]S");
}

// What Claude Code adds behind each turn: the head of the prompt stays as it was.
TEST(ChatRenderer, ANoteStaysWhereItIs) {
  const char* messages = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q"},
      {"role": "system", "content": "<total_tokens>9 tokens left</total_tokens>"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "q2"},
      {"role": "system", "content": "<total_tokens>8 tokens left</total_tokens>"}])";
  EXPECT_EQ(Rendered(kRefusesSecondSystem, messages),
            "<|system|>S<|user|>q<|user|><total_tokens>9 tokens left</total_tokens><|assistant|>a<|user|>q2"
            "<|user|><total_tokens>8 tokens left</total_tokens><|assistant|>");
  EXPECT_EQ(Rendered(kAlternates, messages),
            "<user>S\n\nq\n\n<total_tokens>9 tokens left</total_tokens><assistant>a<user>q2\n\n"
            "<total_tokens>8 tokens left</total_tokens>");
}

TEST(ChatRenderer, NoSystemAndAlternation) {
  EXPECT_EQ(Rendered(kAlternates, R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q"},
      {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a"}, {"role": "assistant",
      "content": "b"}, {"role": "system", "content": "S2"}, {"role": "user", "content": "q3"}])"),
            "<user>S\n\nS2\n\nq\n\nq2<assistant>a\n\nb<user>q3");
}

TEST(ChatRenderer, ARefusalThatJoiningDoesNotMend) {
  const char* messages = R"([{"role": "assistant", "content": "a"}, {"role": "system", "content": "S"}])";
  try {
    Rendered("{{ raise_exception('never: ' + messages[0].role) }}", messages);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("never: assistant"));
  }
  // A template without end is tried once.
  EXPECT_THROW(Rendered("{% for i in range(10000000) %}{% endfor %}", messages), Error);
}

constexpr const char* kToolTurn = R"([{"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "w", "arguments": {}}}]},
    {"role": "tool", "content": "rain"}, {"role": "user", "content": "Thanks"}])";

TEST(ChatRenderer, ToolsAsTextObeyTheTemplate) {
  const ordered_json tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "w"}}])");
  const std::string text = Rendered(kAlternates, kToolTurn, {.tools = tools});
  EXPECT_THAT(text, HasSubstr("<user># Tools"));
  EXPECT_THAT(text, HasSubstr("\n\nWeather?<assistant><tool_call>"));
  EXPECT_THAT(text, HasSubstr("<user><tool_response>\nrain\n</tool_response>\n\nThanks"));
  // One that leaves system messages out without a word.
  const std::string silent =
      "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor "
      "%}";
  EXPECT_THAT(Rendered(silent, kToolTurn, {.tools = tools}), HasSubstr("<user># Tools"));
}

// Random conversations that begin with a user, with system messages and notes anywhere, tools in a form that
// the template does not know, and neighbours of one role: templates that demand one system message, none or
// alternation take them all, and nothing is lost.
TEST(ChatRenderer, EveryConversationObeysTheTemplate) {
  const std::string one_system_and_alternation =
      "{% set ns = namespace(next='user') %}{% for m in messages %}{% if m.role == 'system' %}{% if not "
      "loop.first %}{{ raise_exception('one system message') }}{% endif %}{% elif m.role != ns.next %}{{ "
      "raise_exception('alternate') }}{% else %}{% set ns.next = 'assistant' if m.role == 'user' else 'user' "
      "%}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  const ordered_json tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "w"}}])");
  std::mt19937 random(5);
  const auto one_of = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 500; ++round) {
    ordered_json list = ordered_json::array();
    const auto add = [&](const char* role, bool note = false) {
      const std::string text = "t" + std::to_string(list.size()) + ".";
      list.push_back({{"role", role}, {"content", note ? "<n>" + text + "</n>" : text}});
    };
    if (one_of(2) == 0) add(one_of(2) == 0 ? "system" : "developer");
    add("user");
    for (int left = one_of(10); left > 0; --left) {
      switch (one_of(6)) {
        case 0:
          add("system", one_of(2) == 0);
          break;
        case 1:
          add("assistant");
          list.back()["tool_calls"] = {{{"function", {{"name", "w"}, {"arguments", "{}"}}}}};
          add("tool");
          break;
        case 2:
          add("assistant");
          break;
        default:
          add("user");
      }
    }
    const auto messages = ParseMessages(list, "m");
    for (const std::string& chat_template : {kAlternates, one_system_and_alternation, kRefusesSecondSystem}) {
      ChatOptions options;
      if (round % 2 == 0) options.tools = tools;
      const std::string text = RenderChat(messages, ByteTokenizer(chat_template), options);
      for (size_t i = 0; i < list.size(); ++i)
        EXPECT_THAT(text, HasSubstr("t" + std::to_string(i) + ".")) << list.dump();
    }
  }
}

std::vector<std::string> TextsOf(const ByteTokenizer& tokenizer, const ChatPrompt& prompt,
                                 const std::vector<PositionSpan>& spans) {
  std::vector<std::string> texts;
  for (const PositionSpan& span : spans) {
    texts.push_back(tokenizer.Decode(
        std::span(prompt.tokens)
            .subspan(static_cast<size_t>(span.begin), static_cast<size_t>(span.end - span.begin)),
        true));
  }
  return texts;
}

TEST(ChatRenderer, SpansOfJoinedMessages) {
  const ByteTokenizer tokenizer(kAlternates);
  const ordered_json tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "w"}}])");
  const auto messages = ParseMessages(ordered_json::parse(R"([{"role": "system", "content": " S "},
      {"role": "user", "content": "doc"}, {"role": "system", "content": "S2"},
      {"role": "user", "content": "Who?"}])"),
                                      "m");
  const ChatPrompt prompt = EncodeChat(messages, tokenizer, {.add_special = false});
  EXPECT_EQ(tokenizer.Decode(prompt.tokens, true), "<user>S \n\nS2\n\ndoc\n\nWho?");
  EXPECT_THAT(TextsOf(tokenizer, prompt, prompt.protected_spans), ElementsAre(">S ", "\nS2\n"));
  EXPECT_THAT(TextsOf(tokenizer, prompt, prompt.question), ElementsAre("Who?"));
  const ChatPrompt with = EncodeChat(messages, tokenizer, {.add_special = false, .tools = tools});
  ASSERT_EQ(with.protected_spans.size(), 2u);
  EXPECT_THAT(TextsOf(tokenizer, with, with.protected_spans)[0], HasSubstr("</tool_call>\n"));
  EXPECT_THAT(TextsOf(tokenizer, with, with.question), ElementsAre("Who?"));
}

TEST(ChatRenderer, MarksInTemplatesThatEscapeText) {
  const auto show = [](const std::string& expression, const std::string& content) {
    return RenderChat({{"user", content}}, ByteTokenizer("{{ " + expression + " }}"));
  };
  for (const std::string content : {"a<s>b", "a<s>\\U000f0002", "<s>\\udb80\\udc02 <s>"}) {
    const std::string doubled = ordered_json(content).dump();
    EXPECT_EQ(show("messages[0].content | tojson(ensure_ascii=true)", content), doubled);
    EXPECT_EQ(show("[messages[0].content]", content), "['" + doubled.substr(1, doubled.size() - 2) + "']");
  }
}

// 60 messages and 60 tools, as a coding agent has them: milliseconds, also where messages must be joined.
TEST(ChatRenderer, LongConversationsTakeMilliseconds) {
  ordered_json tools = ordered_json::array();
  for (int i = 0; i < 60; ++i)
    tools.push_back(
        {{"type", "function"},
         {"function", {{"name", "f" + std::to_string(i)}, {"description", std::string(500, 'x')}}}});
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 30; ++i) {
    list.push_back({{"role", i % 2 == 0 ? "system" : "user"}, {"content", std::string(2000, 'y') + "<s>"}});
    list.push_back({{"role", "assistant"}, {"content", "z"}, {"reasoning_content", "r"}});
  }
  const ByteTokenizer tokenizer(kRefusesSecondSystem + "{{ tools | tojson }}");
  const auto messages = ParseMessages(list, "m");
  const std::clock_t start = std::clock();
  RenderChat(messages, tokenizer, {.tools = tools});
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0.2);  // 0.01, and slower sanitized
}

}  // namespace
}  // namespace coppice
