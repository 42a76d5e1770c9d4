// Calls in streams: for every form, however the text is cut, a stream's pieces are the whole answer's calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "byte_tokenizer.h"
#include "server/generation_reply.h"
#include "server/messages_form.h"
#include "server/responses_form.h"
#include "server/sent_test_support.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using Kind = AnswerPart::Kind;

const ordered_json kDeltaTools = ordered_json::parse(R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}}}}},
  {"type": "function", "function": {"name": "g-h.i"}}])");

struct Example {
  std::string answer;         // a text, a call of f and a call of g-h.i
  std::string until_is_told;  // where the call of f is told before its end: what stands up to its arguments
};

const std::map<ToolFormat, Example> kExamples = {
    {ToolFormat::kHermes,
     {"Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a } é\", \"l\": [1, 2]}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g-h.i\", \"arguments\": {}}\n</tool_call>",
      "\"arguments\": "}},
    {ToolFormat::kLlama,
     {"{\"name\": \"f\", \"parameters\": {\"s\": \"a } é\", \"l\": [1, 2]}}; "
      "{\"name\": \"g-h.i\", \"parameters\": {}}",
      "\"parameters\": "}},
    {ToolFormat::kMistral,
     {"Hm.[TOOL_CALLS]f[ARGS]{\"s\": \"a } é\", \"l\": [1, 2]}[TOOL_CALLS]g-h.i[ARGS]{}", "[ARGS]"}},
    {ToolFormat::kChannels,
     {"Hm.<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
      "{\"s\": \"a } é\", \"l\": [1, 2]}<|call|>"
      "<|start|>assistant to=functions.g-h.i<|channel|>commentary json<|message|>{}<|call|>",
      "<|message|>"}},
    {ToolFormat::kXml,
     {"Hm.\n<tool_call>\n<function=f>\n<parameter=s>\na } é\n</parameter>\n<parameter=l>\n[1, 2]\n"
      "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g-h.i>\n</function>\n</tool_call>",
      ""}},
    {ToolFormat::kPython,
     {"Hm. <|tool_call_start|>[f(s=\"a } é\", l=[1, 2]), g-h.i()]<|tool_call_end|>", ""}},
    {ToolFormat::kGemma4,
     {"Hm. <|tool_call>call:f{s:<|\"|>a } é<|\"|>,l:[1,2]}<tool_call|><|tool_call>call:g-h.i{}<tool_call|>",
      ""}},
    {ToolFormat::kArgKeys,
     {"Hm.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a } é</arg_value>\n<arg_key>l</arg_key>\n"
      "<arg_value>[1, 2]</arg_value>\n</tool_call><tool_call>g-h.i</tool_call>",
      ""}},
    {ToolFormat::kInvokes,
     {"Hm.<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">a } é</parameter>"
      "<parameter name=\"l\">[1, 2]</parameter></invoke>\n<invoke name=\"g-h.i\"></invoke>"
      "</minimax:tool_call>",
      ""}},
    {ToolFormat::kAtem,
     {"<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n"
      "<atem:parameter name=\"s\">a } é</atem:parameter>\n<atem:parameter name=\"l\">[1, "
      "2]</atem:parameter>\n"
      "</atem:invoke></atem:function_calls><|eom|><|start|>assistant to=g-h.i<|message|>"
      "<atem:function_calls>\n<atem:invoke name=\"g-h.i\">\n</atem:invoke></atem:function_calls><|eom|>",
      ""}}};

// The parts of an answer joined, after a check of their order.
struct Joined {
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<bool> cut;

  void Add(const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      const bool is_open = calls.size() > cut.size();
      EXPECT_EQ(part.text.empty(), part.kind == Kind::kCallEnd || part.kind == Kind::kCallCut);
      EXPECT_EQ(is_open, part.kind != Kind::kText && part.kind != Kind::kCall);
      if (part.kind == Kind::kText) text += part.text;
      if (part.kind == Kind::kCall) calls.push_back({part.text, ""});
      if (part.kind == Kind::kArguments) calls.back().arguments += part.text;
      if (part.kind == Kind::kCallEnd || part.kind == Kind::kCallCut)
        cut.push_back(part.kind == Kind::kCallCut);
    }
  }
  std::string shown() const {
    std::string all = text;
    for (size_t i = 0; i < calls.size(); ++i)
      all += fmt::format("|{}({}){}", calls[i].name, calls[i].arguments, cut.at(i) ? " cut" : "");
    return all;
  }
};

template <typename Cuts>
std::string InPieces(ToolFormat format, std::string_view answer, const Cuts& cuts) {
  AnswerParser parser(format, kDeltaTools, true);
  Joined joined;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    joined.Add(parser.Push(answer.substr(begin, cut - begin)));
    begin = cut;
  }
  joined.Add(parser.Push(answer.substr(begin)));
  joined.Add(parser.Flush());
  return joined.shown();
}

TEST(CallDeltas, EveryFormIsTested) {
  for (int format = 0; format <= static_cast<int>(ToolFormat::kAtem); ++format)
    EXPECT_TRUE(kExamples.contains(static_cast<ToolFormat>(format))) << format;
}

TEST(CallDeltas, EverySplitGivesTheWholeAnswersCalls) {
  for (const auto& [format, example] : kExamples) {
    const std::string& answer = example.answer;
    const std::string whole = InPieces(format, answer, std::vector<size_t>());
    EXPECT_NE(whole.find("|f({\"s\":"), whole.npos) << whole;
    EXPECT_TRUE(whole.ends_with("|g-h.i({})")) << whole;
    std::vector<size_t> all;
    for (size_t first = 1; first < answer.size(); ++first) {
      all.push_back(first);
      for (size_t second = first; second < answer.size(); ++second)
        ASSERT_EQ(InPieces(format, answer, std::array{first, second}), whole) << first << " " << second;
    }
    EXPECT_EQ(InPieces(format, answer, all), whole);
  }
}

// An answer that ends anywhere: what was told before stays true.
TEST(CallDeltas, WhereverTheAnswerEnds) {
  for (const auto& [format, example] : kExamples) {
    for (size_t end = 0; end < example.answer.size(); ++end) {
      const std::string_view answer = std::string_view(example.answer).substr(0, end);
      std::vector<size_t> all;
      for (size_t cut = 1; cut < end; ++cut) all.push_back(cut);
      ASSERT_EQ(InPieces(format, answer, all), InPieces(format, answer, std::vector<size_t>())) << answer;
    }
  }
}

// In forms whose arguments are one JSON object, every byte of them is told at once.
TEST(CallDeltas, ArgumentsAreTheModelsTextAsItIsWritten) {
  const std::string arguments = "{\"s\": \"a } é\", \"l\": [1, 2]}";
  for (const auto& [format, example] : kExamples) {
    if (example.until_is_told.empty()) continue;
    const size_t begin = example.answer.find(example.until_is_told) + example.until_is_told.size();
    ASSERT_EQ(example.answer.substr(begin, arguments.size()), arguments);
    AnswerParser parser(format, kDeltaTools, true);
    Joined joined;
    joined.Add(parser.Push(example.answer.substr(0, begin)));
    EXPECT_TRUE(joined.calls.empty());
    for (size_t i = 0; i < arguments.size(); ++i) {
      joined.Add(parser.Push(arguments.substr(i, 1)));
      ASSERT_EQ(joined.calls.size(), 1u);
      EXPECT_EQ(joined.calls[0].arguments, arguments.substr(0, i + 1));
      EXPECT_EQ(joined.cut.size(), i + 1 == arguments.size() ? 1u : 0u);
    }
  }
}

Parameters Asked(bool stream) {
  Parameters p;
  p.tools = kDeltaTools;
  p.stream = stream;
  return p;
}

// Sends `answer` to the reply's events, character by character, as a job does.
std::shared_ptr<Sent> Tell(JobEvents& events, const std::shared_ptr<Sent>& sent, std::string_view answer,
                           const char* reason) {
  events.OnPrefix(2);
  events.OnProgress(3, 6, 1.0);
  EXPECT_EQ(sent->events, "");
  events.OnProgress(6, 6, 2.0);
  for (size_t at = 0; at < answer.size();) {
    size_t size = 1;
    while (at + size < answer.size() && (static_cast<unsigned char>(answer[at + size]) & 0xc0) == 0x80)
      ++size;
    events.OnText('x', std::string(answer.substr(at, size)));
    at += size;
  }
  JobResult result;
  result.finish_reason = reason;
  events.OnDone(result);
  return sent;
}

std::shared_ptr<Sent> Chatted(ToolFormat format, bool stream, std::string_view answer,
                              const char* reason = "stop") {
  static const ByteTokenizer tokenizer("");
  static Metrics metrics;
  auto prompt = std::make_shared<EncodedPrompt>();
  prompt->tokens = {1, 2, 3, 4, 5, 6};
  auto sent = std::make_shared<Sent>();
  const auto reply = std::make_shared<GenerationReply>(
      ReplyOptions{
          .route = kChat, .id = "chatcmpl-1", .model = "m", .parameters = Asked(stream), .tools = format},
      std::vector<std::shared_ptr<const EncodedPrompt>>{prompt}, tokenizer, metrics, sent);
  return Tell(*reply->Events(0), sent, answer, reason);
}

TEST(CallDeltas, OfChatCompletions) {
  for (const auto& [format, example] : kExamples) {
    const ordered_json whole =
        ordered_json::parse(Chatted(format, false, example.answer)->body)["choices"][0];
    const std::vector<ordered_json> chunks = DataOf(Chatted(format, true, example.answer)->events);
    EXPECT_EQ(chunks[0]["choices"][0]["delta"], ordered_json({{"role", "assistant"}, {"content", ""}}));
    ordered_json calls = ordered_json::array();
    std::string text, finish;
    for (const ordered_json& chunk : chunks) {
      const ordered_json& delta = chunk["choices"][0]["delta"];
      text += delta.value("content", "");
      if (chunk["choices"][0]["finish_reason"].is_string()) finish = chunk["choices"][0]["finish_reason"];
      if (!delta.contains("tool_calls")) continue;
      ASSERT_EQ(delta["tool_calls"].size(), 1u);
      ordered_json item = delta["tool_calls"][0];
      const size_t index = item["index"];
      item.erase("index");
      if (item.contains("id")) {
        EXPECT_EQ(index, calls.size());
        EXPECT_EQ(item["function"]["arguments"], "");
        calls.push_back(item);
      } else {
        ASSERT_EQ(index + 1, calls.size());
        ASSERT_EQ(item["function"].size(), 1u);
        calls.back()["function"]["arguments"].get_ref<std::string&>() += item["function"]["arguments"];
      }
    }
    EXPECT_EQ(calls, whole["message"]["tool_calls"]);
    EXPECT_EQ(calls.size(), 2u);
    EXPECT_EQ(text, whole["message"]["content"].is_null() ? "" : whole["message"]["content"]);
    EXPECT_EQ(finish, "tool_calls");
    EXPECT_EQ(finish, whole["finish_reason"]);
  }
}

// The answer ends within the first call's arguments.
std::string Cut() {
  const std::string& answer = kExamples.at(ToolFormat::kHermes).answer;
  return answer.substr(0, answer.find(", 2]"));
}

TEST(CallDeltas, ACallThatIsCutIsNotFinished) {
  for (const char* reason : {"length", "stop"}) {
    const ordered_json choice =
        ordered_json::parse(Chatted(ToolFormat::kHermes, false, Cut(), reason)->body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], reason);
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"s\": \"a } é\", \"l\": [1");
  }
}

template <typename Reply>
std::shared_ptr<Sent> InBlocks(ToolFormat format, bool stream, std::string_view answer,
                               const char* reason = "stop", std::chrono::seconds kept_for = {}) {
  static Metrics metrics;
  auto sent = std::make_shared<Sent>();
  BlockReplyOptions options;
  options.id = "m-1";
  options.model = "m";
  options.parameters = Asked(stream);
  options.prompt_tokens = 6;
  options.kept_for = kept_for;
  options.tools = format;
  Reply reply(options, metrics, sent);
  return Tell(reply, sent, answer, reason);
}

TEST(CallDeltas, OfMessages) {
  for (const auto& [format, example] : kExamples) {
    const ordered_json whole =
        ordered_json::parse(InBlocks<MessagesReply>(format, false, example.answer)->body);
    ordered_json blocks = ordered_json::array();
    std::string pieces;
    bool is_open = false;
    for (const ordered_json& data : DataOf(InBlocks<MessagesReply>(format, true, example.answer)->events)) {
      const std::string type = data["type"];
      if (type == "content_block_start") {
        EXPECT_EQ(data["index"], blocks.size());
        EXPECT_FALSE(is_open);
        blocks.push_back(data["content_block"]);
        pieces.clear();
      } else if (type == "content_block_delta") {
        EXPECT_EQ(data["index"], blocks.size() - 1);
        const ordered_json& delta = data["delta"];
        pieces += delta["type"] == "text_delta" ? delta["text"] : delta["partial_json"];
      } else if (type == "content_block_stop") {
        EXPECT_EQ(data["index"], blocks.size() - 1);
        if (blocks.back()["type"] == "text") {
          blocks.back()["text"] = pieces;
        } else {
          EXPECT_EQ(blocks.back()["input"], ordered_json::object());
          blocks.back()["input"] = ordered_json::parse(pieces);
        }
      }
      is_open = type.starts_with("content_block_") && type != "content_block_stop";
    }
    EXPECT_EQ(blocks, whole["content"]);
    EXPECT_EQ(whole["stop_reason"], "tool_use");
  }
  const ordered_json cut =
      ordered_json::parse(InBlocks<MessagesReply>(ToolFormat::kHermes, false, Cut(), "length")->body);
  EXPECT_EQ(cut["content"][1]["input"], ordered_json({{"s", "a } é"}}));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
}

TEST(CallDeltas, OfResponses) {
  for (const auto& [format, example] : kExamples) {
    const ordered_json whole =
        ordered_json::parse(InBlocks<ResponsesReply>(format, false, example.answer)->body);
    ordered_json items = ordered_json::array();
    std::string pieces;
    size_t number = 0;
    for (const ordered_json& data : DataOf(InBlocks<ResponsesReply>(format, true, example.answer)->events)) {
      const std::string type = data["type"];
      EXPECT_EQ(data["sequence_number"], number++);
      if (type == "response.output_item.added") {
        EXPECT_EQ(data["output_index"], items.size());
        if (data["item"]["type"] == "function_call") {
          EXPECT_EQ(data["item"]["arguments"], "");
        }
        pieces.clear();
      } else if (type == "response.function_call_arguments.delta") {
        pieces += data["delta"];
      } else if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(data["arguments"], pieces);
      } else if (type == "response.output_item.done") {
        items.push_back(data["item"]);
        if (data["item"]["type"] == "function_call") {
          EXPECT_EQ(data["item"]["arguments"], pieces);
        }
      }
    }
    EXPECT_EQ(items, whole["output"]);
  }
  const ordered_json cut =
      ordered_json::parse(InBlocks<ResponsesReply>(ToolFormat::kHermes, false, Cut(), "length")->body);
  EXPECT_EQ(cut["output"][1]["status"], "incomplete");
}

// The begin of a stream tells the client that its prompt was read, before the answer has a text.
TEST(CallDeltas, BeginsComeAtTheEndOfThePrefill) {
  const auto first = [](const std::shared_ptr<Sent>& sent) { return DataOf(sent->events).at(0); };
  EXPECT_EQ(first(InBlocks<ResponsesReply>(ToolFormat::kHermes, true, ""))["type"], "response.created");
  const auto usage = [&](std::chrono::seconds kept_for) {
    const auto sent = InBlocks<MessagesReply>(ToolFormat::kHermes, true, "", "stop", kept_for);
    EXPECT_EQ(first(sent)["type"], "message_start");
    ordered_json begun = first(sent)["message"]["usage"];
    for (const ordered_json& data : DataOf(sent->events)) {
      if (data["type"] == "message_delta") {
        EXPECT_EQ(data["usage"], begun);
      }
    }
    return std::vector<int>{begun["input_tokens"], begun["cache_creation_input_tokens"],
                            begun["cache_read_input_tokens"],
                            begun["cache_creation"]["ephemeral_5m_input_tokens"],
                            begun["cache_creation"]["ephemeral_1h_input_tokens"]};
  };
  EXPECT_EQ(usage({}), (std::vector<int>{4, 0, 2, 0, 0}));
  EXPECT_EQ(usage(std::chrono::minutes(5)), (std::vector<int>{1, 3, 2, 3, 0}));
  EXPECT_EQ(usage(std::chrono::hours(1)), (std::vector<int>{1, 3, 2, 0, 3}));
}

TEST(CallDeltas, ArgumentsThatAreNoObject) {
  for (const auto& [text, object] :
       {std::pair(R"({"a": 1})", R"({"a":1})"),
        std::pair(R"({"a": [1, {"b": ",}"}], "c": "x, y)", R"({"a":[1,{"b":",}"}]})"),
        std::pair(R"({"a": 1, "b": 2, "a": )", R"({"a":1,"b":2})"), std::pair(R"({"a": [1, 2)", "{}"),
        std::pair(R"({"a": 1, "a": 2})", R"({"a":1})"), std::pair("", "{}"), std::pair("{", "{}"),
        std::pair("{]]},", "{}")})
    EXPECT_EQ(ArgumentsObject(text).dump(), object) << text;
}

}  // namespace
}  // namespace coppice
