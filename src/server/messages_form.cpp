#include "server/messages_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/fnv.h"
#include "engine/chat_tools.h"
#include "server/cache_control.h"
#include "server/content_parts.h"
#include "server/errors.h"
#include "server/request_json.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

using Names = std::vector<std::string>;
using Definitions = std::map<std::string, ordered_json>;

// The parts of a message or of a result; none where its content is a text.
ordered_json Parts(const ordered_json& holder) {
  ordered_json content = Member(holder, "content");
  return content.is_array() ? content : ordered_json::array();
}

ordered_json ToolUse(const ordered_json& block) {
  return {{"id", TextMember(block, "id")},
          {"type", "function"},
          {"function",
           {{"name", TextMember(block, "name")},
            {"arguments", DumpJson(block.value("input", ordered_json::object()))}}}};
}

// The names of the tools that results in the conversation refer to.
std::set<std::string> ReferredTools(const ordered_json& messages) {
  std::set<std::string> names;
  for (const ordered_json& message : messages) {
    for (const ordered_json& block : Parts(message)) {
      for (const ordered_json& part : Parts(block)) {
        if (TextMember(part, "type") == "tool_reference") names.insert(TextMember(part, "tool_name"));
      }
    }
  }
  return names;
}

// A tool's result as a chat's message. What it refers to is defined there: a definition among the tools, at
// the head of the prompt, would change what every turn before has read.
ordered_json ToolResult(const ordered_json& block, const Definitions& deferred, Names& ignored) {
  ordered_json content = Member(block, "content");
  if (content.is_array()) {
    for (ordered_json& part : content) {
      const auto tool = deferred.find(TextMember(part, "tool_name"));
      if (TextMember(part, "type") == "tool_reference" && tool != deferred.end())
        part = {{"type", "text"}, {"text", DumpJson(tool->second)}};
    }
  }
  return {{"role", "tool"},
          {"tool_call_id", TextMember(block, "tool_use_id")},
          {"content", TextOfContent(content, "messages", ignored)}};
}

// Appends the message's own form: results of calls become messages of their own, in front of its text.
void AddMessage(const ordered_json& message, size_t number, const Definitions& deferred, ordered_json& list,
                Names& ignored) {
  const std::string role = TextMember(message, "role");
  if (!message.is_object() || !message.contains("content") ||
      (role != "user" && role != "assistant" && role != "system")) {
    throw BadField("messages",
                   fmt::format("message {} needs content and the role user, assistant or system", number));
  }
  const ordered_json& content = message["content"];
  ordered_json texts = ordered_json::array();
  ordered_json calls = ordered_json::array();
  bool has_results = false;
  for (const ordered_json& block : content.is_array() ? content : ordered_json::array()) {
    const std::string type = TextMember(block, "type");
    if (type == "tool_use") {
      calls.push_back(ToolUse(block));
    } else if (type == "tool_result") {
      has_results = true;
      list.push_back(ToolResult(block, deferred, ignored));
    } else {
      texts.push_back(block);
    }
  }
  const std::string thought = role == "assistant" ? TakeThoughts(texts) : "";
  ordered_json chat = {{"role", role},
                       {"content", TextOfContent(content.is_array() ? texts : content, "messages", ignored)}};
  if (has_results && texts.empty()) return;
  if (!thought.empty()) chat["reasoning_content"] = thought;
  if (!calls.empty()) chat["tool_calls"] = std::move(calls);
  for (const char* key : {"protect", "question"}) {
    if (message.contains(key)) chat[key] = message[key];
  }
  list.push_back(std::move(chat));
}

// A request's functions of the client's own, in a chat's form. Anthropic's tools, which its servers run or
// its clients know, are left out.
struct Tools {
  ordered_json list = ordered_json::array();
  Definitions deferred;  // of the list: those that a result in the conversation defines
};

// A tool with "defer_loading" is unknown to the model until a result refers to it. Where the search would be
// run by Anthropic's servers, nothing ever would, and all are known from the beginning.
Tools ChatTools(const ordered_json& tools, const ordered_json& messages, Names& ignored) {
  Tools chat;
  if (!tools.is_array()) throw BadField("tools", "is not a list");
  const bool has_search = std::ranges::any_of(tools, [](const ordered_json& tool) {
    return TextMember(tool, "type").starts_with("tool_search_tool");
  });
  const std::set<std::string> referred = has_search ? std::set<std::string>() : ReferredTools(messages);
  for (const ordered_json& tool : tools) {
    if (!tool.is_object()) throw BadField("tools", "holds something that is no object");
    const std::string type = TextMember(tool, "type");
    if (!type.empty() && type != "custom") {
      AddIgnored(type, ignored);
      continue;
    }
    const std::string name = TextMember(tool, "name");
    const bool is_deferred = !has_search && Member(tool, "defer_loading") == true;
    if (is_deferred && !referred.contains(name)) continue;
    ordered_json function = {{"name", Member(tool, "name")}};
    if (tool.contains("description")) function["description"] = tool["description"];
    function["parameters"] = tool.value("input_schema", ordered_json::object());
    ordered_json one = {{"type", "function"}, {"function", std::move(function)}};
    if (is_deferred) {
      chat.deferred[name] = one;
      one[kDefinedInMessages] = true;
    }
    chat.list.push_back(std::move(one));
  }
  return chat;
}

void SetToolChoice(const ordered_json& choice, ordered_json& chat, Names& ignored) {
  const std::string type = TextMember(choice, "type");
  const ordered_json tools = Member(chat, "tools");
  const auto is_named = [&](const ordered_json& tool) {
    return tool["function"]["name"] == TextMember(choice, "name");
  };
  const bool left_out =
      tools.is_null() || tools.empty() || (type == "tool" && std::ranges::none_of(tools, is_named));
  if (left_out && (type == "tool" || type == "any")) {
    AddIgnored("tool_choice", ignored);
    chat["tool_choice"] = "auto";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", TextMember(choice, "name")}}}};
  } else if (type == "auto" || type == "any" || type == "none") {
    chat["tool_choice"] = type;
  } else {
    throw BadField("tool_choice", "its type is not auto, any, tool or none");
  }
  if (Member(choice, "disable_parallel_tool_use") == true) chat["parallel_tool_calls"] = false;
}

// Anthropic's structured outputs; what else output_config holds has no effect.
void SetOutput(ordered_json config, ordered_json& chat, Names& ignored) {
  if (!config.is_object()) throw BadField("output_config", "is not an object");
  if (const ordered_json format = TakeMember(config, "format"); !format.is_null())
    chat["response_format"] = format;
  for (const auto& [name, value] : config.items()) {
    if (!value.is_null()) AddIgnored("output_config." + name, ignored);
  }
}

}  // namespace

ChatForm ChatOfMessages(std::string_view body) {
  Names ignored;
  ordered_json chat = ParseRequestObject(body);
  if (const std::chrono::seconds lifetime = CacheLifetimeOf(chat); lifetime.count() > 0)
    chat["cache_control"] = {{"type", "ephemeral"}, {"ttl", lifetime >= std::chrono::hours(1) ? "1h" : "5m"}};
  const ordered_json messages = TakeMember(chat, "messages");
  if (!messages.is_array() || messages.empty()) throw BadField("messages", "is not a list of messages");
  ordered_json list = ordered_json::array();
  if (const ordered_json system = TakeMember(chat, "system"); !system.is_null())
    list.push_back({{"role", "system"}, {"content", TextOfContent(system, "system", ignored)}});
  Tools tools;
  if (const ordered_json sent = TakeMember(chat, "tools"); !sent.is_null()) {
    tools = ChatTools(sent, messages, ignored);
    chat["tools"] = tools.list;
  }
  for (size_t i = 0; i < messages.size(); ++i) AddMessage(messages[i], i + 1, tools.deferred, list, ignored);
  // Anthropic's API continues an assistant's message that ends the chat.
  if (list.back()["role"] == "assistant" && !list.back().contains("tool_calls"))
    chat["continue_final_message"] = true;
  chat["messages"] = std::move(list);
  if (const ordered_json stop = TakeMember(chat, "stop_sequences"); !stop.is_null()) chat["stop"] = stop;
  if (const ordered_json choice = TakeMember(chat, "tool_choice"); !choice.is_null())
    SetToolChoice(choice, chat, ignored);
  if (const ordered_json config = TakeMember(chat, "output_config"); !config.is_null())
    SetOutput(config, chat, ignored);
  // The name that the field had before.
  if (const ordered_json format = TakeMember(chat, "output_format"); !format.is_null())
    chat["response_format"] = format;
  // Anthropic's servers have no "until the model stops".
  if (const ordered_json most = Member(chat, "max_tokens");
      !most.is_null() && (!most.is_number() || most < 1))
    throw BadField("max_tokens",
                   fmt::format("{} is not a whole number from 1", DumpJson(most).substr(0, 40)));
  for (const char* no_effect : {"context_management", "mcp_servers", "container"}) {
    if (!TakeMember(chat, no_effect).is_null()) AddIgnored(no_effect, ignored);
  }
  return {.body = DumpJson(chat),
          .ignored = std::move(ignored),
          .sent_names = {{"stop", "stop_sequences"}, {"response_format", "output_config.format"}}};
}

// As Anthropic counts: each token of the prompt once, as read from the cache, as written to it, or as
// neither. The last one is computed by every request.
ordered_json MessagesReply::Usage(int64_t sampled) const {
  const int64_t computed = options().prompt_tokens - cached();
  const auto kept_for = options().kept_for;
  const int64_t written = kept_for.count() > 0 ? std::max<int64_t>(computed - 1, 0) : 0;
  const bool is_long = kept_for >= std::chrono::hours(1);
  return {{"input_tokens", computed - written},
          {"cache_creation_input_tokens", written},
          {"cache_creation",
           {{"ephemeral_5m_input_tokens", is_long ? 0 : written},
            {"ephemeral_1h_input_tokens", is_long ? written : 0}}},
          {"cache_read_input_tokens", cached()},
          {"output_tokens", sampled}};
}

ordered_json MessagesReply::Message() const {
  return {{"id", options().id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", options().model},
          {"content", ordered_json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

namespace {

// Clients expect one and send it back. Nobody checks it: whose the thinking is does not matter here.
std::string SignatureOf(const std::string& thought) { return fmt::format("{:016x}", Fnv1a(thought)); }

// The block without its text or input, as a stream begins it, or whole.
template <typename Block>
ordered_json BlockJson(const Block& block, bool whole) {
  if (block.is_thought)
    return {{"type", "thinking"},
            {"thinking", whole ? block.text : ""},
            {"signature", whole ? SignatureOf(block.text) : ""}};
  if (!block.call) return {{"type", "text"}, {"text", whole ? block.text : ""}};
  return {{"type", "tool_use"},
          {"id", block.id},
          {"name", block.call->name},
          {"input", whole ? ArgumentsObject(block.call->arguments) : ordered_json::object()}};
}

template <typename End>
ordered_json StopJson(const End& end) {
  const char* reason = end.finish_reason == "tool_calls" ? "tool_use"
                       : end.finish_reason == "length"   ? "max_tokens"
                       : !end.stop_string.empty()        ? "stop_sequence"
                                                         : "end_turn";
  ordered_json stop = {{"stop_reason", reason}, {"stop_sequence", nullptr}};
  if (!end.stop_string.empty()) stop["stop_sequence"] = end.stop_string;
  return stop;
}

}  // namespace

void MessagesReply::SendBegin() {
  ordered_json message = Message();
  message["usage"] = Usage(0);
  Send("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
}

void MessagesReply::SendBlock(size_t index, const Block& block) {
  Send("content_block_start",
       {{"type", "content_block_start"}, {"index", index}, {"content_block", BlockJson(block, false)}});
}

void MessagesReply::SendText(size_t index, const Block& block, const std::string& text) {
  const ordered_json delta = block.call ? ordered_json({{"type", "input_json_delta"}, {"partial_json", text}})
                             : block.is_thought
                                 ? ordered_json({{"type", "thinking_delta"}, {"thinking", text}})
                                 : ordered_json({{"type", "text_delta"}, {"text", text}});
  Send("content_block_delta", {{"type", "content_block_delta"}, {"index", index}, {"delta", delta}});
}

void MessagesReply::SendBlockEnd(size_t index, const Block& block) {
  if (block.is_thought) {
    Send("content_block_delta",
         {{"type", "content_block_delta"},
          {"index", index},
          {"delta", {{"type", "signature_delta"}, {"signature", SignatureOf(block.text)}}}});
  }
  Send("content_block_stop", {{"type", "content_block_stop"}, {"index", index}});
}

void MessagesReply::SendEnd(const End& end) {
  ordered_json delta = {{"type", "message_delta"}, {"delta", StopJson(end)}, {"usage", Usage(end.sampled)}};
  delta.update(end.more);
  Send("message_delta", delta);
  Send("message_stop", {{"type", "message_stop"}});
}

std::string MessagesReply::ErrorEvents(const HttpFault& fault) {
  return ErrorReply(fault, options().errors).last_events;
}

ordered_json MessagesReply::Whole(const End& end) {
  ordered_json message = Message();
  for (const Block& block : blocks()) message["content"].push_back(BlockJson(block, true));
  message.update(StopJson(end));
  message["usage"] = Usage(end.sampled);
  message.update(end.more);
  return message;
}

}  // namespace coppice
