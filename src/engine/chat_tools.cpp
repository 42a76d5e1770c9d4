#include "engine/chat_tools.h"

#include <algorithm>

#include "base/error.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

bool IsFunctionName(const ordered_json& name) {
  const std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/";
  if (!name.is_string()) return false;
  const auto& text = name.get_ref<const std::string&>();
  return !text.empty() && text.size() <= 128 && text.find_first_not_of(letters) == text.npos;
}

// The object that the text is.
ordered_json ObjectOrNull(const std::string& text) {
  try {
    return ParseOrderedJson(text, "arguments");
  } catch (const Error&) {
    return nullptr;
  }
}

std::string Dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The words are those that Qwen2.5 and Hermes were trained with.
std::string DescribeTools(const ordered_json& tools) {
  std::string text =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
      "function "
      "signatures within <tools></tools> XML tags:\n<tools>";
  for (const ordered_json& tool : tools) text += "\n" + Dumped(tool);
  return text +
         "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
         "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
         "<args-json-object>}\n</tool_call>";
}

}  // namespace

void CheckTools(const ordered_json& tools, const std::string& source) {
  if (!tools.is_array()) throw Error("{}: is not a list of functions", source);
  if (tools.size() > kMaxTools)
    throw Error("{}: {} functions; the most is {}", source, tools.size(), kMaxTools);
  for (const ordered_json& tool : tools) {
    if (!tool.is_object() || tool.value("type", ordered_json()) != "function" || !tool.contains("function") ||
        !tool["function"].is_object() || !IsFunctionName(tool["function"].value("name", ordered_json()))) {
      throw Error("{}: each is {{\"type\": \"function\", \"function\": {{\"name\": a word, ...}}}}", source);
    }
    const ordered_json parameters = tool["function"].value("parameters", ordered_json());
    if (!parameters.is_null() && !parameters.is_object())
      throw Error("{}: parameters of a function is not a JSON schema", source);
  }
}

namespace {

// A call's arguments as templates take them. Servers write "" or null for a function without parameters.
ordered_json ArgumentsOf(const ordered_json& function, size_t message, const std::string& source) {
  ordered_json arguments = function.value("arguments", ordered_json());
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == text.npos) return ordered_json::object();
    if (ordered_json parsed = ObjectOrNull(text); parsed.is_object()) return parsed;
    if (text == "null") return ordered_json::object();
  }
  if (arguments.is_null()) return ordered_json::object();
  if (!arguments.is_string() && !arguments.is_object())
    throw Error("{}: message {}: a call's arguments are not an object", source, message);
  return arguments;
}

}  // namespace

ordered_json ParseToolCalls(const ordered_json& calls, size_t message, const std::string& source) {
  if (!calls.is_array()) throw Error("{}: message {}: tool_calls is not a list", source, message);
  if (calls.size() > kMaxTools)
    throw Error("{}: message {}: more than {} tool_calls", source, message, kMaxTools);
  ordered_json list = calls;
  for (ordered_json& call : list) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !IsFunctionName(call["function"].value("name", ordered_json())))
      throw Error("{}: message {}: a call needs the object function with a name", source, message);
    call["function"]["arguments"] = ArgumentsOf(call["function"], message, source);
  }
  return list;
}

std::vector<ChatMessage> WithToolsAsText(std::vector<ChatMessage> messages, const ordered_json& tools) {
  for (ChatMessage& message : messages) {
    for (const ordered_json& call : *message.tool_calls) {
      if (!message.content.empty()) message.content += '\n';
      const ordered_json said = {{"name", call["function"]["name"]},
                                 {"arguments", call["function"]["arguments"]}};
      message.content += "<tool_call>\n" + Dumped(said) + "\n</tool_call>";
      message.has_content = true;
    }
    message.tool_calls = ordered_json::array();
    if (message.role == "tool") {
      message.role = "user";
      message.content = "<tool_response>\n" + message.content + "\n</tool_response>";
      message.has_content = true;
    }
    for (const char* key : {"tool_calls", "tool_call_id"}) message.members->erase(key);
  }
  if (tools.empty()) return messages;
  const bool has_system =
      !messages.empty() && (messages.front().role == "system" || messages.front().role == "developer");
  if (!has_system) messages.insert(messages.begin(), ChatMessage{.role = "system", .content = ""});
  ChatMessage& system = messages.front();
  system.content += (system.content.empty() ? "" : "\n\n") + DescribeTools(tools);
  system.is_protected = true;
  system.has_content = true;
  return messages;
}

}  // namespace coppice
