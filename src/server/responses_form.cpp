#include "server/responses_form.h"

#include <fmt/format.h>

#include "server/errors.h"
#include "server/request_json.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// The parts of an item's content in a chat's form.
ordered_json ChatContent(const ordered_json& content) {
  if (!content.is_array()) return content;
  ordered_json parts = ordered_json::array();
  for (const ordered_json& part : content) {
    const std::string type = TextMember(part, "type");
    if (type != "input_text" && type != "output_text" && type != "text")
      throw BadField("input", "holds something that is no text; only texts can be read");
    parts.push_back({{"type", "text"}, {"text", TextMember(part, "text")}});
  }
  return parts;
}

void AddCall(const ordered_json& item, ordered_json& list) {
  // The calls of one answer belong to one message.
  if (list.empty() || list.back()["role"] != "assistant")
    list.push_back({{"role", "assistant"}, {"content", ""}});
  list.back()["tool_calls"].push_back(
      {{"id", TextMember(item, "call_id")},
       {"type", "function"},
       {"function", {{"name", TextMember(item, "name")}, {"arguments", TextMember(item, "arguments")}}}});
}

ordered_json ChatMessages(const ordered_json& input) {
  ordered_json list = ordered_json::array();
  if (input.is_string()) list.push_back({{"role", "user"}, {"content", input}});
  for (const ordered_json& item : input.is_array() ? input : ordered_json::array()) {
    if (!item.is_object()) throw BadField("input", "holds something that is no item");
    const std::string type = TextMember(item, "type");
    if (type == "function_call") {
      AddCall(item, list);
    } else if (type == "function_call_output") {
      list.push_back({{"role", "tool"},
                      {"tool_call_id", TextMember(item, "call_id")},
                      {"content", ChatContent(item.value("output", ordered_json("")))}});
    } else if (type.empty() || type == "message") {
      ordered_json message = item;
      for (const char* key : {"type", "id", "status"}) message.erase(key);
      if (message.contains("content")) message["content"] = ChatContent(message["content"]);
      list.push_back(std::move(message));
    } else if (type != "reasoning") {
      throw BadField("input", fmt::format("has an item of the type {}", DumpJson(type.substr(0, 40))));
    }
  }
  if (list.empty()) throw BadField("input", "is neither a text nor a list of items");
  return list;
}

ordered_json ChatTools(const ordered_json& tools) {
  if (!tools.is_array()) throw BadField("tools", "is not a list");
  ordered_json list = ordered_json::array();
  for (const ordered_json& tool : tools) {
    if (TextMember(tool, "type") != "function") throw BadField("tools", "only functions can be called");
    ordered_json function = tool;
    function.erase("type");
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

// The format of text.format as a chat's response_format.
ordered_json ChatFormat(const ordered_json& format) {
  if (TextMember(format, "type") != "json_schema") return format;
  ordered_json schema = format;
  schema.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace

std::string ChatOfResponses(std::string_view body) {
  ordered_json chat = ParseRequestObject(body);
  for (const char* stored : {"previous_response_id", "conversation", "prompt"}) {
    if (!TakeMember(chat, stored).is_null())
      throw BadField(stored, "this server stores nothing; send the whole conversation");
  }
  if (TakeMember(chat, "background") == true) throw BadField("background", "is not supported");
  ordered_json messages = ChatMessages(TakeMember(chat, "input"));
  if (const ordered_json said = TakeMember(chat, "instructions"); !said.is_null())
    messages.insert(messages.begin(), ordered_json({{"role", "system"}, {"content", said}}));
  chat["messages"] = std::move(messages);
  if (const ordered_json most = TakeMember(chat, "max_output_tokens"); !most.is_null())
    chat["max_tokens"] = most;
  if (const ordered_json tools = TakeMember(chat, "tools"); !tools.is_null())
    chat["tools"] = ChatTools(tools);
  if (const ordered_json choice = TakeMember(chat, "tool_choice"); choice.is_object()) {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", TextMember(choice, "name")}}}};
  } else if (!choice.is_null()) {
    chat["tool_choice"] = choice;
  }
  const ordered_json text = TakeMember(chat, "text");
  if (text.is_object() && text.contains("format")) chat["response_format"] = ChatFormat(text["format"]);
  for (const char* no_effect : {"include", "reasoning", "truncation", "max_tool_calls"})
    TakeMember(chat, no_effect);
  return DumpJson(chat);
}

namespace {

template <typename Block>
ordered_json ItemJson(const Block& block, bool whole) {
  const char* status = whole ? "completed" : "in_progress";
  if (block.call) {
    return {{"type", "function_call"},  {"id", "fc_" + block.id},
            {"call_id", block.id},      {"status", status},
            {"name", block.call->name}, {"arguments", whole ? block.call->arguments : ""}};
  }
  ordered_json item = {{"type", "message"},
                       {"id", block.id},
                       {"status", status},
                       {"role", "assistant"},
                       {"content", ordered_json::array()}};
  if (whole)
    item["content"].push_back(
        {{"type", "output_text"}, {"text", block.text}, {"annotations", ordered_json::array()}});
  return item;
}

}  // namespace

ordered_json ResponsesReply::Response(const char* status) const {
  const Parameters& p = options().parameters;
  const bool is_incomplete = std::string_view(status) == "incomplete";
  ordered_json tools = ordered_json::array();
  for (const ordered_json& tool : *p.tools) {
    ordered_json flat = {{"type", "function"}};
    flat.update(tool["function"]);
    tools.push_back(std::move(flat));
  }
  return {{"id", options().id},
          {"object", "response"},
          {"created_at", options().created},
          {"status", status},
          {"error", nullptr},
          {"incomplete_details",
           is_incomplete ? ordered_json({{"reason", "max_output_tokens"}}) : ordered_json()},
          {"model", options().model},
          {"output", ordered_json::array()},
          {"parallel_tool_calls", p.parallel_tool_calls},
          {"tool_choice", p.tool_choice == ToolChoice::kNone   ? "none"
                          : p.tool_choice == ToolChoice::kAuto ? "auto"
                                                               : "required"},
          {"tools", std::move(tools)},
          {"temperature", p.sampling.temperature},
          {"top_p", p.sampling.top_p},
          {"store", false}};
}

ordered_json ResponsesReply::Whole(const End& end) {
  ordered_json response = Response(end.finish_reason == "length" ? "incomplete" : "completed");
  for (const Block& block : blocks()) response["output"].push_back(ItemJson(block, true));
  response["usage"] = {{"input_tokens", options().prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", cached()}}},
                       {"output_tokens", end.sampled},
                       {"output_tokens_details", {{"reasoning_tokens", 0}}},
                       {"total_tokens", options().prompt_tokens + end.sampled}};
  response.update(end.more);
  return response;
}

void ResponsesReply::SendTyped(const std::string& type, ordered_json data) {
  ordered_json event = {{"type", type}, {"sequence_number", sent_++}};
  event.update(data);
  Send(type, event);
}

void ResponsesReply::SendBegin() {
  for (const char* type : {"response.created", "response.in_progress"})
    SendTyped(type, {{"response", Response("in_progress")}});
}

void ResponsesReply::SendBlock(size_t index, const Block& block) {
  SendTyped("response.output_item.added", {{"output_index", index}, {"item", ItemJson(block, false)}});
  if (block.call) {
    const std::string id = "fc_" + block.id;
    const std::string& arguments = block.call->arguments;
    SendTyped("response.function_call_arguments.delta",
              {{"item_id", id}, {"output_index", index}, {"delta", arguments}});
    SendTyped(
        "response.function_call_arguments.done",
        {{"item_id", id}, {"output_index", index}, {"name", block.call->name}, {"arguments", arguments}});
    return;
  }
  SendTyped("response.content_part.added",
            {{"item_id", block.id},
             {"output_index", index},
             {"content_index", 0},
             {"part", {{"type", "output_text"}, {"text", ""}, {"annotations", ordered_json::array()}}}});
}

void ResponsesReply::SendText(size_t index, const Block& block, const std::string& text) {
  SendTyped("response.output_text.delta", {{"item_id", block.id},
                                           {"output_index", index},
                                           {"content_index", 0},
                                           {"delta", text},
                                           {"logprobs", ordered_json::array()}});
}

void ResponsesReply::SendBlockEnd(size_t index, const Block& block) {
  const ordered_json item = ItemJson(block, true);
  if (!block.call) {
    const ordered_json place = {{"item_id", block.id}, {"output_index", index}, {"content_index", 0}};
    ordered_json done = place;
    done.update({{"text", block.text}, {"logprobs", ordered_json::array()}});
    SendTyped("response.output_text.done", std::move(done));
    ordered_json part = place;
    part["part"] = item["content"][0];
    SendTyped("response.content_part.done", std::move(part));
  }
  SendTyped("response.output_item.done", {{"output_index", index}, {"item", item}});
}

void ResponsesReply::SendEnd(const End& end) {
  const ordered_json whole = Whole(end);
  SendTyped(end.finish_reason == "length" ? "response.incomplete" : "response.completed",
            {{"response", whole}});
}

}  // namespace coppice
