// Replies whose answers call functions, that score their prompts, and that take too much memory.
#include "server/generation_reply.h"

#include <gtest/gtest.h>

#include "byte_tokenizer.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

class Sent final : public Exchange {
 public:
  void Reply(HttpReply reply) override {
    status = reply.status;
    body = std::move(reply.body);
  }
  void StartPings(std::chrono::milliseconds) override {}
  void Send(std::string text) override { events += text; }
  void End() override {}
  bool Hold(int64_t bytes) override {
    held = bytes;
    return bytes <= room;
  }
  void OnGone(std::function<void()>) override {}
  void Note(LogNote) override {}

  std::string body;
  std::string events;
  int status = 0;
  int64_t held = 0;
  int64_t room = int64_t{1} << 40;
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
  p.tools = ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}])");
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

// What Qwen2.5-Coder answers, although its template asks for <tool_call>.
TEST(GenerationReply, ABareCallIsACall) {
  const std::string bare = R"({"name": "f", "arguments": {"city": "Paris"}})";
  for (const std::string& text : {bare, "```json\n" + bare + "\n```"}) {
    const ordered_json choice = ordered_json::parse(Answered(text, WithTools(false))->body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
              ordered_json({{"name", "f"}, {"arguments", R"({"city":"Paris"})"}}));
    const std::string events = Answered(text, WithTools(true))->events;
    EXPECT_NE(events.find(R"("finish_reason":"tool_calls")"), events.npos);
    EXPECT_EQ(events.find(R"("content":"{)"), events.npos);
  }
  Parameters asked = WithTools(false);
  asked.form = AnswerForm::kObject;
  const ordered_json choice = ordered_json::parse(Answered(bare, asked)->body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"]["content"], bare);
}

// The grammar of a call does not know multipleOf; the reply says what it lets through.
TEST(GenerationReply, ArgumentsThatDoNotFitAreTold) {
  Parameters p = WithTools(false);
  p.tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 7}}}}}])");
  const auto call = [](int a) { return fmt::format(R"({{"name": "f", "arguments": {{"a": {}}}}})", a); };
  const ordered_json expected = ordered_json::parse(
      R"([{"tool_call": 0, "name": "f", "path": "/a", "message": "8 is no multiple of 7"}])");
  EXPECT_EQ(ordered_json::parse(Answered(call(8), p)->body)["tool_call_errors"], expected);
  EXPECT_FALSE(ordered_json::parse(Answered(call(7), p)->body).contains("tool_call_errors"));
  p.stream = true;
  const std::string events = Answered(call(8), p)->events;
  const size_t last = events.find("\"finish_reason\":\"tool_calls\"");
  ASSERT_NE(last, events.npos);
  EXPECT_NE(events.find("\"tool_call_errors\":" + expected.dump(), last), events.npos);
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

Parameters WithScores(bool stream) {
  Parameters p;
  p.stream = stream;
  p.echo = p.log_probs = true;
  return p;
}

// A completion's reply with `n` choices of one prompt of three tokens.
std::shared_ptr<GenerationReply> Scored(int n, const Parameters& parameters, std::shared_ptr<Sent> sent) {
  static const ByteTokenizer tokenizer("");
  static Metrics metrics;
  auto prompt = std::make_shared<EncodedPrompt>();
  prompt->tokens = {'a', 'b', 'c'};
  prompt->pieces = {"a", "b", "c"};
  prompt->text = "abc";
  const std::vector<std::shared_ptr<const EncodedPrompt>> choices(static_cast<size_t>(n), prompt);
  return std::make_shared<GenerationReply>(
      ReplyOptions{.id = "cmpl-1", .model = "m", .parameters = parameters}, choices, tokenizer, metrics,
      std::move(sent));
}

void Generate(JobEvents& events, char c) {
  events.OnLogProbs({.token = {c, -1.0}, .top = {}});
  events.OnText(c, std::string(1, c));
  JobResult result;
  result.finish_reason = "length";
  events.OnDone(result);
}

TEST(GenerationReply, OneChoiceScoresThePromptOfAll) {
  for (const bool stream : {false, true}) {
    auto sent = std::make_shared<Sent>();
    const auto reply = Scored(2, WithScores(stream), sent);
    EXPECT_TRUE(reply->ScoresPrompt(0));
    EXPECT_FALSE(reply->ScoresPrompt(1));
    int calls = 0;
    reply->OnScored(0, [&] { ++calls; });
    const auto first = reply->Events(0), second = reply->Events(1);
    first->OnLogProbs({.token = {'b', -0.25}, .top = {}});
    EXPECT_EQ(calls, 0);
    first->OnLogProbs({.token = {'c', -0.5}, .top = {}});
    EXPECT_EQ(calls, 1);
    Generate(*second, 'y');
    Generate(*first, 'x');
    EXPECT_EQ(calls, 1);
    const std::string all = stream ? sent->events : sent->body;
    for (const char* text : {"[\"a\",\"b\",\"c\",\"x\"]", "[\"a\",\"b\",\"c\",\"y\"]"}) {
      EXPECT_NE(all.find(std::string("\"tokens\":") + text), std::string::npos) << all;
    }
    const std::string values = "\"token_logprobs\":[null,-0.25,-0.5,-1.0]",
                      offsets = "\"text_offset\":[0,1,2,3]";
    EXPECT_NE(all.find(values), all.rfind(values)) << all;
    EXPECT_NE(all.find(offsets), all.rfind(offsets)) << all;
  }
}

TEST(GenerationReply, IsCountedWhileItIsMade) {
  auto sent = std::make_shared<Sent>();
  const auto reply = Scored(2, WithScores(false), sent);
  const auto events = reply->Events(0);
  for (int i = 0; i < 1000; ++i) {
    events->OnLogProbs({.token = {'x', -1.0}, .top = {{'y', -2.0}, {'z', -3.0}}});
    events->OnText('x', "x");
  }
  EXPECT_GT(sent->held, 20'000);
  EXPECT_EQ(sent->status, 0);
}

// The request fails once, and its other jobs are told.
TEST(GenerationReply, FailsWhereItTakesTooMuchMemory) {
  for (const bool stream : {false, true}) {
    auto sent = std::make_shared<Sent>();
    sent->room = 0;
    const auto reply = Scored(2, WithScores(stream), sent);
    int failures = 0;
    reply->OnFailure([&] { ++failures; });
    const auto events = reply->Events(0);
    for (int i = 0; i < 1000; ++i) {
      events->OnLogProbs({.token = {'x', -1.0}, .top = {}});
      if (!stream) events->OnText('x', "x");
    }
    EXPECT_EQ(sent->status, 503);
    EXPECT_NE(sent->body.find("too much memory"), std::string::npos);
    EXPECT_EQ(failures, 1);
    events->OnDone({});
    reply->Events(1)->OnError({499, "", ""});
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(sent->status, 503);
  }
}

// What is written at the end, with the prompt of every choice, counts before it is written.
TEST(GenerationReply, AWholeReplyNeedsRoom) {
  auto sent = std::make_shared<Sent>();
  sent->room = 1000;
  const auto reply = Scored(2, WithScores(false), sent);
  for (int i = 0; i < 2; ++i) Generate(*reply->Events(i), 'x');
  EXPECT_EQ(sent->status, 503);
}

// So do the prompt's tokens as texts, and how deep each was computed, which every choice repeats.
TEST(GenerationReply, PiecesAndDepthsCount) {
  static const ByteTokenizer tokenizer("");
  static Metrics metrics;
  constexpr int64_t kTokens = 5000;
  auto prompt = std::make_shared<EncodedPrompt>();
  prompt->tokens.assign(kTokens, 'a');
  Parameters parameters;
  parameters.return_prompt_pieces = parameters.return_prune_depth = true;
  const std::vector<std::shared_ptr<const EncodedPrompt>> choices(3, prompt);
  auto sent = std::make_shared<Sent>();
  const auto reply =
      std::make_shared<GenerationReply>(ReplyOptions{.id = "cmpl-1", .model = "m", .parameters = parameters},
                                        choices, tokenizer, metrics, sent);
  for (int i = 0; i < 3; ++i) {
    TraceRecorder* recorder = reply->Recorder(i);
    ASSERT_NE(recorder, nullptr);
    Trace& trace = recorder->trace();
    trace.layers = 2;
    trace.prompt_tokens = kTokens;
    trace.prefill.resize(2);
    for (int32_t p = 0; p < kTokens; ++p) trace.prefill[0].kept.push_back(p);
    for (int32_t p = 0; p < kTokens; p += 2) trace.prefill[1].kept.push_back(p);
    Generate(*reply->Events(i), 'x');
  }
  EXPECT_EQ(sent->status, 200);
  const ordered_json body = ordered_json::parse(sent->body);
  for (const ordered_json& choice : body["choices"]) {
    EXPECT_EQ(choice["prompt_pieces"].size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(choice["prune"]["depth"].size(), static_cast<size_t>(kTokens));
  }
  const auto size = static_cast<int64_t>(sent->body.size());
  EXPECT_GT(size, 3 * kTokens * 9);
  EXPECT_GT(sent->held, size) << "it counts with what it is made from";
  EXPECT_LT(sent->held, 2 * size);
}

}  // namespace
}  // namespace coppice
