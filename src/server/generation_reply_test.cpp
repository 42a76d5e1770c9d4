// Replies whose answers call functions.
#include "server/generation_reply.h"

#include <gtest/gtest.h>

#include "byte_tokenizer.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

class Sent final : public Exchange {
 public:
  void Reply(HttpReply reply) override { body = std::move(reply.body); }
  void StartPings(std::chrono::milliseconds) override {}
  void Send(std::string text) override { events += text; }
  void End() override {}
  void OnGone(std::function<void()>) override {}
  void Note(std::string) override {}

  std::string body;
  std::string events;
};

const std::string kAnswer =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

// What is sent of `text`, which comes byte by byte.
std::shared_ptr<Sent> Answered(const std::string& text, Parameters parameters) {
  static const ByteTokenizer tokenizer("");
  static Metrics metrics;
  auto prompt = std::make_shared<EncodedPrompt>();
  prompt->tokens = {1, 2, 3};
  auto sent = std::make_shared<Sent>();
  ReplyOptions options{.route = kChat, .id = "chatcmpl-1", .model = "m", .parameters = std::move(parameters)};
  if (!options.parameters.tools->empty()) options.tools = ToolFormat::kHermes;
  auto reply = std::make_shared<GenerationReply>(
      options, std::vector<std::shared_ptr<const EncodedPrompt>>{prompt}, tokenizer, metrics, sent);
  const auto events = reply->Events(0);
  for (const char c : text) events->OnText(c, std::string(1, c));
  JobResult result;
  result.finish_reason = "stop";
  events->OnDone(result);
  return sent;
}

Parameters WithTools(bool stream, bool parallel = true) {
  Parameters p;
  p.tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  p.stream = stream;
  p.parallel_tool_calls = parallel;
  return p;
}

TEST(GenerationReply, CallsAreMembersOfTheMessage) {
  const ordered_json choice = ordered_json::parse(Answered(kAnswer, WithTools(false))->body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  const ordered_json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], ordered_json({{"name", "f"}, {"arguments", "{\"a\":1}"}}));
  EXPECT_EQ(calls[1]["function"]["name"], "g");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST(GenerationReply, AnAnswerOfOneCallHasNoContent) {
  const ordered_json choice =
      ordered_json::parse(Answered(kAnswer.substr(12), WithTools(false, false))->body)["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
}

TEST(GenerationReply, WithoutToolsTheSameTextIsText) {
  const ordered_json choice = ordered_json::parse(Answered(kAnswer, {})->body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"], ordered_json({{"role", "assistant"}, {"content", kAnswer}}));
}

TEST(GenerationReply, CallsAreStreamed) {
  const std::string events = Answered(kAnswer, WithTools(true))->events;
  std::string text, finish;
  ordered_json calls = ordered_json::array();
  for (size_t at = events.find("data: {"); at != events.npos; at = events.find("data: {", at + 1)) {
    const ordered_json choice =
        ordered_json::parse(events.substr(at + 6, events.find('\n', at) - at - 6))["choices"][0];
    const ordered_json& delta = choice["delta"];
    text += delta.value("content", "");
    if (delta.contains("tool_calls")) calls.push_back(delta["tool_calls"][0]);
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
  EXPECT_EQ(text, "Let me see.");
  EXPECT_EQ(finish, "tool_calls");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"a\":1}");
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace coppice
