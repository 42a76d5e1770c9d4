#include "server/call_forms.h"

#include <algorithm>
#include <utility>

#include "engine/marks.h"
#include "server/errors.h"
#include "server/typed_value.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr XmlTags kXml{"<function=", "</function>", "<parameter=", "</parameter>", true};
constexpr XmlTags kInvokes{"<invoke name=", "</invoke>", "<parameter name=", "</parameter>"};
constexpr XmlTags kAtem{"<atem:invoke name=", "</atem:invoke>", "<atem:parameter name=", "</atem:parameter>"};
constexpr std::string_view kGemmaCall = "call:";
constexpr std::string_view kArgKey = "<arg_key>";
constexpr std::string_view kArgValueEnd = "</arg_value>";

// What stands in front of `end`; nullopt if that is not there.
std::optional<std::string_view> TakeUpTo(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  if (at == text.npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return taken;
}

std::string_view WithoutQuotes(std::string_view name) {
  SkipBlanks(name);
  name = WithoutBlanksAtEnd(name);
  const bool quoted =
      name.size() > 1 && (name.front() == '"' || name.front() == '\'') && name.back() == name.front();
  return quoted ? name.substr(1, name.size() - 2) : name;
}

// The template writes one line break on either side of a value.
std::string_view WithoutBreaks(std::string_view value) {
  if (value.starts_with("\r\n")) value.remove_prefix(1);
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (value.ends_with('\r')) value.remove_suffix(1);
  return value;
}

// Whether a value may end in front of this text: the next argument begins there, or the call ends. A value
// may hold the mark of its own end, and that of an argument that the function does not have.
bool FollowsValue(std::string_view rest, const XmlTags& tags, const ordered_json& function,
                  const ordered_json& arguments) {
  SkipBlanks(rest);
  if (SkipText(rest, tags.function_end)) {
    SkipBlanks(rest);
    return rest.empty() || rest.starts_with(tags.function);
  }
  if (!SkipText(rest, tags.parameter)) return false;
  const std::optional<std::string_view> key = TakeUpTo(rest, ">");
  if (!key) return false;
  const std::string name(WithoutQuotes(*key));
  const ordered_json parameters =
      function.is_object() ? function.value("parameters", ordered_json()) : ordered_json();
  const bool knows = parameters.is_object() && parameters.contains("properties") &&
                     parameters["properties"].is_object() && !parameters["properties"].empty();
  return !arguments.contains(name) && (!knows || parameters["properties"].contains(name));
}

// One argument behind <parameter=. Returns false if its end is missing.
bool TakeXmlArgument(std::string_view& text, const XmlTags& tags, const ordered_json& function,
                     ordered_json& arguments) {
  const std::optional<std::string_view> sent_key = TakeUpTo(text, ">");
  if (!sent_key || arguments.size() >= kMaxCallArguments) return false;
  const std::string key(WithoutQuotes(*sent_key));
  if (key.empty() || key.find_first_of("<\n") != key.npos) return false;
  arguments[key] = nullptr;
  std::optional<size_t> end;
  // Where no end fits exactly, as where a function does not know the next argument, the first one counts.
  const std::string_view close = tags.parameter_end;
  for (size_t at = text.find(close); at != text.npos; at = text.find(close, at + 1)) {
    std::string_view rest = text.substr(at + close.size());
    if (FollowsValue(rest, tags, function, arguments)) {
      end = at;
      break;
    }
    SkipBlanks(rest);
    if (!end && rest.starts_with(tags.parameter)) end = at;
  }
  if (!end) return false;
  const std::string_view value = text.substr(0, *end);
  arguments[key] = TypedValue(tags.breaks ? WithoutBreaks(value) : value, ArgumentSchema(function, key));
  text.remove_prefix(*end + close.size());
  return true;
}

std::vector<ToolCall> XmlCalls(std::string_view text, const XmlTags& tags,
                               const CallableFunctions& functions) {
  std::vector<ToolCall> calls;
  for (SkipBlanks(text); !text.empty() && calls.size() < kMaxCalls; SkipBlanks(text)) {
    if (!SkipText(text, tags.function)) return {};
    const std::optional<std::string_view> name = TakeUpTo(text, ">");
    if (!name || !functions.Has(WithoutQuotes(*name))) return {};
    const std::string called(WithoutQuotes(*name));
    const ordered_json function = functions.Find(called);
    ordered_json arguments = ordered_json::object();
    for (SkipBlanks(text); !SkipText(text, tags.function_end); SkipBlanks(text)) {
      if (!SkipText(text, tags.parameter) || !TakeXmlArgument(text, tags, function, arguments)) return {};
    }
    calls.push_back({called, DumpJson(arguments)});
  }
  return calls;
}

std::optional<std::string> TakeFunctionName(std::string_view& text, const CallableFunctions& functions) {
  const ordered_json name = TakeKey(text);
  if (!name.is_string() || !functions.Has(name.get_ref<const std::string&>())) return std::nullopt;
  return name.get<std::string>();
}

// [f(a="b", c=1), g()], or one call without the list.
std::vector<ToolCall> PythonCalls(std::string_view text, const CallableFunctions& functions) {
  std::vector<ToolCall> calls;
  SkipBlanks(text);
  const bool is_list = SkipText(text, "[");
  for (bool first = true; calls.size() < kMaxCalls; first = false) {
    SkipBlanks(text);
    if (is_list && SkipText(text, "]")) break;
    if (!is_list && text.empty()) break;
    if (!first && !SkipText(text, ",") && is_list) return {};
    const std::optional<std::string> name = TakeFunctionName(text, functions);
    if (!name || !SkipText(text, "(")) return {};
    const ordered_json function = functions.Find(*name);
    ordered_json arguments = ordered_json::object();
    for (SkipBlanks(text); !SkipText(text, ")"); SkipBlanks(text)) {
      const ordered_json key = TakeKey(text);
      SkipBlanks(text);
      if (!key.is_string() || !SkipText(text, "=") || arguments.size() >= kMaxCallArguments) return {};
      ordered_json value = TakeLiteral(text, false);
      if (value.is_discarded()) return {};
      arguments[key.get_ref<const std::string&>()] = std::move(value);
      SkipBlanks(text);
      if (!SkipText(text, ",") && !text.starts_with(')')) return {};
    }
    calls.push_back({*name, DumpJson(arguments)});
  }
  SkipBlanks(text);
  return text.empty() ? calls : std::vector<ToolCall>();
}

// call:f{a:<|"|>b<|"|>,c:1}
std::vector<ToolCall> GemmaCalls(std::string_view text, const CallableFunctions& functions) {
  std::vector<ToolCall> calls;
  for (SkipBlanks(text); !text.empty() && calls.size() < kMaxCalls; SkipBlanks(text)) {
    if (!SkipText(text, kGemmaCall)) return {};
    const std::optional<std::string> name = TakeFunctionName(text, functions);
    SkipBlanks(text);
    if (!name || !text.starts_with('{')) return {};
    ordered_json arguments = TakeLiteral(text, true);
    if (!arguments.is_object()) return {};
    calls.push_back({*name, DumpJson(arguments)});
  }
  return calls;
}

// N, then <arg_key>K</arg_key> and <arg_value>V</arg_value> for each argument, with blanks between the tags.
std::vector<ToolCall> ArgKeyCalls(std::string_view text, const CallableFunctions& functions) {
  const std::string name(WithoutQuotes(text.substr(0, text.find(kArgKey))));
  if (!functions.Has(name)) return {};
  text.remove_prefix(std::min(text.find(kArgKey), text.size()));
  const ordered_json function = functions.Find(name);
  ordered_json arguments = ordered_json::object();
  for (; !text.empty(); SkipBlanks(text)) {
    if (!SkipText(text, kArgKey) || arguments.size() >= kMaxCallArguments) return {};
    const std::optional<std::string_view> key = TakeUpTo(text, "</arg_key>");
    SkipBlanks(text);
    if (!key || key->empty() || !SkipText(text, "<arg_value>")) return {};
    // A value may hold the mark of its own end: behind the right one the next argument begins, or nothing.
    size_t end = text.find(kArgValueEnd);
    for (; end != text.npos; end = text.find(kArgValueEnd, end + 1)) {
      std::string_view rest = text.substr(end + kArgValueEnd.size());
      SkipBlanks(rest);
      if (rest.empty() || rest.starts_with(kArgKey)) break;
    }
    if (end == text.npos) return {};
    const std::string named(*key);
    arguments[named] = TypedValue(text.substr(0, end), ArgumentSchema(function, named));
    text.remove_prefix(end + kArgValueEnd.size());
  }
  return {{name, DumpJson(arguments)}};
}

// Whether `text` is `wanted`, begins it, or begins with it; what is behind it then remains.
bool Begins(std::string_view& text, std::string_view wanted) {
  if (SkipText(text, wanted)) return true;
  if (!wanted.starts_with(text)) return false;
  text = {};
  return true;
}

}  // namespace

bool CallableFunctions::Has(std::string_view name) const {
  return std::ranges::find(names, name) != names.end();
}

bool CallableFunctions::HasBeginning(std::string_view begin) const {
  return std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(begin); });
}

ordered_json CallableFunctions::Find(std::string_view name) const {
  if (tools == nullptr) return nullptr;
  for (const ordered_json& tool : *tools) {
    if (tool["function"]["name"] == name) return tool["function"];
  }
  return nullptr;
}

const XmlTags& XmlTagsOf(ToolFormat format) {
  return format == ToolFormat::kInvokes ? kInvokes : format == ToolFormat::kAtem ? kAtem : kXml;
}

bool MayBeCalls(ToolFormat format, std::string_view text, const CallableFunctions& functions) {
  SkipBlanks(text);
  const bool is_xml =
      format == ToolFormat::kXml || format == ToolFormat::kInvokes || format == ToolFormat::kAtem;
  if (is_xml && !Begins(text, XmlTagsOf(format).function)) return false;
  if (format == ToolFormat::kGemma4 && !Begins(text, kGemmaCall)) return false;
  if (format == ToolFormat::kPython && Begins(text, "[")) SkipBlanks(text);
  const std::string_view ends = is_xml                           ? ">"
                                : format == ToolFormat::kPython  ? "("
                                : format == ToolFormat::kArgKeys ? "<\n"
                                                                 : "{";
  const size_t end = text.find_first_of(ends);
  std::string_view name = WithoutBlanksAtEnd(text.substr(0, end));
  SkipBlanks(name);
  const auto is_quote = [](char c) { return c == '"' || c == '\''; };
  while (!name.empty() && is_quote(name.front())) name.remove_prefix(1);
  while (!name.empty() && is_quote(name.back())) name.remove_suffix(1);
  if (end == text.npos) return functions.HasBeginning(name);
  return functions.Has(WithoutQuotes(text.substr(0, end)));
}

std::string_view CallsEnd(ToolFormat format) {
  switch (format) {
    case ToolFormat::kXml:
      return kXml.function_end;
    case ToolFormat::kPython:
      return "<|tool_call_end|>";
    case ToolFormat::kArgKeys:
      return "</tool_call>";
    case ToolFormat::kInvokes:
      return "</minimax:tool_call>";
    case ToolFormat::kAtem:
      return "</atem:function_calls>";
    default:
      return "<tool_call|>";
  }
}

std::vector<ToolCall> CallsOf(ToolFormat format, std::string_view text, const CallableFunctions& functions) {
  switch (format) {
    case ToolFormat::kPython:
      return PythonCalls(text, functions);
    case ToolFormat::kArgKeys:
      return ArgKeyCalls(text, functions);
    case ToolFormat::kGemma4:
      return GemmaCalls(text, functions);
    default:
      return XmlCalls(text, XmlTagsOf(format), functions);
  }
}

}  // namespace coppice
