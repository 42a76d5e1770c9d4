#include "server/responses_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/chat_tools.h"
#include "server/content_parts.h"
#include "server/errors.h"
#include "server/request_json.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

using Names = std::vector<std::string>;
using Functions = std::map<std::string, FunctionName>;

std::string NotEmpty(std::string text, const char* otherwise) { return text.empty() ? otherwise : text; }

// A call in an assistant's message; the calls of one answer belong to one message.
void AddCall(const ordered_json& item, const std::string& name, const ordered_json& arguments,
             ordered_json& list) {
  if (list.empty() || TextMember(list.back(), "role") != "assistant")
    list.push_back({{"role", "assistant"}, {"content", ""}});
  list.back()["tool_calls"].push_back(
      {{"id", NotEmpty(TextMember(item, "call_id"), TextMember(item, "id").c_str())},
       {"type", "function"},
       {"function",
        {{"name", name},
         {"arguments", arguments.is_string() || arguments.is_object() ? arguments : ordered_json("{}")}}}});
}

// Calls of tools that the server does not offer: in the conversation they are calls like others.
bool AddOtherCall(const ordered_json& item, const std::string& type, ordered_json& list) {
  if (type == "custom_tool_call") {
    AddCall(item, NotEmpty(TextMember(item, "name"), "custom_tool"),
            ordered_json({{"input", Member(item, "input")}}), list);
  } else if (type == "local_shell_call" || type == "shell_call" || type == "apply_patch_call" ||
             type == "computer_call") {
    const ordered_json action = Member(item, type == "apply_patch_call" ? "operation" : "action");
    AddCall(item, type.substr(0, type.size() - 5), action.is_object() ? action : ordered_json::object(),
            list);
  } else if (type == "tool_search_call") {
    AddCall(item, "tool_search", Member(item, "arguments"), list);
  } else {
    return false;
  }
  return true;
}

// The name by which the model knows a function of a namespace.
std::string ShownName(const Functions& functions, const std::string& space, const std::string& name) {
  const auto found = std::ranges::find_if(
      functions, [&](const auto& one) { return one.second.space == space && one.second.name == name; });
  return found == functions.end() ? name : found->first;
}

// What a reasoning item that this server made says; empty for those of other servers.
std::string ThoughtOf(const ordered_json& item) {
  std::string thought;
  for (const ordered_json& part : Member(item, "content")) {
    if (TextMember(part, "type") != "reasoning_text") continue;
    if (!thought.empty()) thought += "\n\n";
    thought += TextMember(part, "text");
  }
  if (!thought.empty()) return thought;
  const std::string kept = TextMember(item, "encrypted_content");
  return kept.starts_with(kKeptThinking) ? kept.substr(kKeptThinking.size()) : "";
}

bool IsThoughtAlone(const ordered_json& message) {
  return message.contains("reasoning_content") && TextMember(message, "content").empty() &&
         !message.contains("tool_calls");
}

// Appends an item's form as a chat's message. Items that mean nothing to the model are left out.
void AddItem(const ordered_json& item, const Functions& functions, ordered_json& list, Names& ignored) {
  if (!item.is_object()) throw BadField("input", "has an item that is no object");
  const std::string type = TextMember(item, "type");
  if (type == "function_call") {
    const std::string name = TextMember(item, "name");
    if (name.empty()) throw BadField("input", "has a function_call without a name");
    AddCall(item, ShownName(functions, TextMember(item, "namespace"), name), Member(item, "arguments"), list);
  } else if (AddOtherCall(item, type, list)) {
    AddIgnored(type, ignored);
  } else if (type.ends_with("_call_output") || type == "tool_search_output") {
    if (type != "function_call_output") AddIgnored(type, ignored);
    const ordered_json output = Member(item, type == "tool_search_output" ? "tools" : "output");
    const bool is_content = output.is_null() || output.is_string() ||
                            (output.is_array() && (output.empty() || !TextMember(output[0], "type").empty() ||
                                                   output[0].is_string()));
    list.push_back({{"role", "tool"},
                    {"tool_call_id", TextMember(item, "call_id")},
                    {"content", is_content ? TextOfContent(output, "input", ignored) : DumpJson(output)}});
  } else if (const std::string thought = type == "reasoning" ? ThoughtOf(item) : ""; !thought.empty()) {
    list.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", thought}});
  } else if (type.empty() || type == "message" || type == "agent_message") {
    ordered_json message = item;
    for (const char* key : {"type", "id", "status", "phase"}) message.erase(key);
    if (type == "agent_message") message["role"] = "user";
    if (message.contains("content")) message["content"] = TextOfContent(message["content"], "input", ignored);
    if (!list.empty() && IsThoughtAlone(list.back()) && TextMember(message, "role") == "assistant") {
      list.back().update(message);
    } else {
      list.push_back(std::move(message));
    }
  } else if (type == "mcp_call" && Member(item, "output").is_string()) {
    AddCall(item, NotEmpty(TextMember(item, "name"), "mcp_call"), Member(item, "arguments"), list);
    list.push_back({{"role", "tool"}, {"tool_call_id", TextMember(item, "id")}, {"content", item["output"]}});
  } else {
    AddIgnored(type, ignored);  // reasoning, web_search_call, mcp_list_tools, item_reference, compaction ...
  }
}

ordered_json ChatMessages(const ordered_json& input, const Functions& functions, Names& ignored) {
  ordered_json list = ordered_json::array();
  if (input.is_string()) list.push_back({{"role", "user"}, {"content", input}});
  for (const ordered_json& item : input.is_array() ? input : ordered_json::array())
    AddItem(item, functions, list, ignored);
  // A template would write an answer that is empty.
  std::erase_if(list.get_ref<ordered_json::array_t&>(), IsThoughtAlone);
  if (list.empty()) throw BadField("input", "is neither a text nor a list of items with a message");
  return list;
}

bool HasTool(const ordered_json& tools, const std::string& name) {
  return std::ranges::any_of(
      tools, [&](const ordered_json& tool) { return TextMember(Member(tool, "function"), "name") == name; });
}

// The functions of a request, those within a namespace too. Tools that OpenAI's servers run are left out.
class ToolList {
 public:
  explicit ToolList(Names& ignored) : ignored_(ignored) {}

  void Add(const ordered_json& tools) {
    if (!tools.is_array()) throw BadField("tools", "is not a list");
    for (const ordered_json& tool : tools) {
      if (TextMember(tool, "type") == "function") taken_.insert(TextMember(FunctionOf(tool), "name"));
    }
    for (const ordered_json& tool : tools) AddTool(tool, "");
  }
  ordered_json TakeList() { return std::move(list_); }
  Functions TakeFunctions() { return std::move(functions_); }

 private:
  // Some clients send the form of chat completions.
  static ordered_json FunctionOf(const ordered_json& tool) {
    ordered_json function = Member(tool, "function");
    return function.is_object() ? function : tool;
  }

  void AddTool(const ordered_json& tool, const std::string& space) {
    if (!tool.is_object()) throw BadField("tools", "holds something that is no object");
    const std::string type = TextMember(tool, "type");
    const ordered_json inner = Member(tool, "tools");
    if (type == "namespace" && space.empty() && inner.is_array() && !inner.empty()) {
      const std::string name = TextMember(tool, "name");
      if (name.empty()) throw BadField("tools", "has a namespace without a name");
      for (const ordered_json& one : inner) AddTool(one, name);
    } else if (type == "function") {
      ordered_json function = FunctionOf(tool);
      function.erase("type");
      if (!space.empty()) Name(space, function);
      // More would be refused later; here each item of the conversation is compared with each of them.
      if (list_.size() >= kMaxTools)
        throw BadField("tools", fmt::format("more than {} functions", kMaxTools));
      list_.push_back({{"type", "function"}, {"function", std::move(function)}});
    } else {
      AddIgnored(NotEmpty(type, "tools"), ignored_);
    }
  }

  // A function of a namespace keeps its name where no other function has it.
  void Name(const std::string& space, ordered_json& function) {
    const std::string name = TextMember(function, "name");
    if (name.empty()) return;
    std::string shown = taken_.contains(name) ? space + (space.ends_with('_') ? "" : "__") + name : name;
    while (taken_.contains(shown)) shown += '_';
    taken_.insert(shown);
    functions_[shown] = {space, name};
    function["name"] = shown;
  }

  Names& ignored_;
  ordered_json list_ = ordered_json::array();
  Functions functions_;
  std::set<std::string> taken_;
};

// Sets the choice, which may name tools that were left out.
void SetToolChoice(const ordered_json& sent, ordered_json& chat, Names& ignored) {
  ordered_json choice = sent;
  const ordered_json tools = chat.contains("tools") ? chat["tools"] : ordered_json::array();
  if (TextMember(sent, "type") == "allowed_tools") {
    ordered_json allowed = ordered_json::array();
    std::set<std::string> names;
    for (const ordered_json& one : Member(sent, "tools")) names.insert(TextMember(one, "name"));
    for (const ordered_json& tool : tools) {
      if (names.contains(TextMember(Member(tool, "function"), "name"))) allowed.push_back(tool);
    }
    chat["tools"] = allowed;
    choice = NotEmpty(TextMember(sent, "mode"), "auto");
  } else if (sent.is_object()) {
    const std::string name =
        NotEmpty(TextMember(sent, "name"), TextMember(Member(sent, "function"), "name").c_str());
    if (TextMember(sent, "type") == "function" && name.empty())
      throw BadField("tool_choice", "names no function");
    choice = HasTool(tools, name) ? ordered_json({{"type", "function"}, {"function", {{"name", name}}}})
                                  : ordered_json();
  }
  const bool has_tools = chat.contains("tools") && !chat["tools"].empty();
  if (choice.is_null() || (choice == "required" && !has_tools)) {
    AddIgnored("tool_choice", ignored);
    choice = "auto";
  }
  chat["tool_choice"] = choice;
}

// The format of text.format as a chat's response_format.
ordered_json ChatFormat(const ordered_json& format) {
  if (TextMember(format, "type") != "json_schema") return format;
  ordered_json schema = format;
  schema.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace

ChatForm ChatOfResponses(std::string_view body) {
  Names ignored;
  ordered_json chat = ParseRequestObject(body);
  for (const char* stored : {"previous_response_id", "conversation", "prompt"}) {
    if (!TakeMember(chat, stored).is_null())
      throw BadField(stored, "this server stores nothing; send the whole conversation");
  }
  if (TakeMember(chat, "background") == true) throw BadField("background", "is not supported");
  Functions functions;
  if (const ordered_json tools = TakeMember(chat, "tools"); !tools.is_null()) {
    ToolList list(ignored);
    list.Add(tools);
    chat["tools"] = list.TakeList();
    functions = list.TakeFunctions();
  }
  ordered_json messages = ChatMessages(TakeMember(chat, "input"), functions, ignored);
  if (const ordered_json said = TakeMember(chat, "instructions"); !said.is_null())
    messages.insert(
        messages.begin(),
        ordered_json({{"role", "system"}, {"content", TextOfContent(said, "instructions", ignored)}}));
  chat["messages"] = std::move(messages);
  if (const ordered_json most = TakeMember(chat, "max_output_tokens"); !most.is_null())
    chat["max_tokens"] = most;
  if (const ordered_json choice = TakeMember(chat, "tool_choice"); !choice.is_null())
    SetToolChoice(choice, chat, ignored);
  const ordered_json text = TakeMember(chat, "text");
  if (text.is_object() && text.contains("format")) chat["response_format"] = ChatFormat(text["format"]);
  const ordered_json include = TakeMember(chat, "include");
  const bool returns_thinking =
      include.is_array() && std::ranges::find(include, "reasoning.encrypted_content") != include.end();
  for (const char* no_effect : {"truncation", "max_tool_calls", "client_metadata"})
    TakeMember(chat, no_effect);
  return {
      .body = DumpJson(chat),
      .ignored = std::move(ignored),
      .functions = std::move(functions),
      .returns_thinking = returns_thinking,
      .sent_names = {
          {"messages", "input"}, {"max_tokens", "max_output_tokens"}, {"response_format", "text.format"}}};
}

}  // namespace coppice
