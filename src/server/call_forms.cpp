#include "server/call_forms.h"

#include <algorithm>
#include <utility>

#include "engine/marks.h"
#include "server/errors.h"
#include "server/typed_value.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kXmlFunction = "<function=";
constexpr std::string_view kXmlFunctionEnd = "</function>";
constexpr std::string_view kXmlParameter = "<parameter=";
constexpr std::string_view kXmlParameterEnd = "</parameter>";
constexpr std::string_view kGemmaCall = "call:";

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
bool FollowsValue(std::string_view rest, const ordered_json& function, const ordered_json& arguments) {
  SkipBlanks(rest);
  if (SkipText(rest, kXmlFunctionEnd)) {
    SkipBlanks(rest);
    return rest.empty() || rest.starts_with(kXmlFunction);
  }
  if (!SkipText(rest, kXmlParameter)) return false;
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
bool TakeXmlArgument(std::string_view& text, const ordered_json& function, ordered_json& arguments) {
  const std::optional<std::string_view> sent_key = TakeUpTo(text, ">");
  if (!sent_key || arguments.size() >= kMaxCallArguments) return false;
  const std::string key(WithoutQuotes(*sent_key));
  if (key.empty() || key.find_first_of("<\n") != key.npos) return false;
  arguments[key] = nullptr;
  std::optional<size_t> end;
  // Where no end fits exactly, as where a function does not know the next argument, the first one counts.
  for (size_t at = text.find(kXmlParameterEnd); at != text.npos; at = text.find(kXmlParameterEnd, at + 1)) {
    std::string_view rest = text.substr(at + kXmlParameterEnd.size());
    if (FollowsValue(rest, function, arguments)) {
      end = at;
      break;
    }
    SkipBlanks(rest);
    if (!end && rest.starts_with(kXmlParameter)) end = at;
  }
  if (!end) return false;
  arguments[key] = TypedValue(WithoutBreaks(text.substr(0, *end)), ArgumentSchema(function, key));
  text.remove_prefix(*end + kXmlParameterEnd.size());
  return true;
}

std::vector<ToolCall> XmlCalls(std::string_view text, const CallableFunctions& functions) {
  std::vector<ToolCall> calls;
  for (SkipBlanks(text); !text.empty() && calls.size() < kMaxCalls; SkipBlanks(text)) {
    if (!SkipText(text, kXmlFunction)) return {};
    const std::optional<std::string_view> name = TakeUpTo(text, ">");
    if (!name || !functions.Has(WithoutQuotes(*name))) return {};
    const std::string called(WithoutQuotes(*name));
    const ordered_json function = functions.Find(called);
    ordered_json arguments = ordered_json::object();
    for (SkipBlanks(text); !SkipText(text, kXmlFunctionEnd); SkipBlanks(text)) {
      if (!SkipText(text, kXmlParameter) || !TakeXmlArgument(text, function, arguments)) return {};
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

bool MayBeCalls(ToolFormat format, std::string_view text, const CallableFunctions& functions) {
  SkipBlanks(text);
  if (format == ToolFormat::kXml && !Begins(text, kXmlFunction)) return false;
  if (format == ToolFormat::kGemma4 && !Begins(text, kGemmaCall)) return false;
  if (format == ToolFormat::kPython && Begins(text, "[")) SkipBlanks(text);
  const std::string_view ends = format == ToolFormat::kXml ? ">" : format == ToolFormat::kPython ? "(" : "{";
  const size_t end = text.find(ends);
  std::string_view name = WithoutBlanksAtEnd(text.substr(0, end));
  SkipBlanks(name);
  while (!name.empty() && (name.front() == '"' || name.front() == '\'')) name.remove_prefix(1);
  if (end == text.npos) return functions.HasBeginning(name);
  return functions.Has(WithoutQuotes(text.substr(0, end)));
}

std::string_view CallsEnd(ToolFormat format) {
  return format == ToolFormat::kXml      ? kXmlFunctionEnd
         : format == ToolFormat::kPython ? "<|tool_call_end|>"
                                         : "<tool_call|>";
}

std::vector<ToolCall> CallsOf(ToolFormat format, std::string_view text, const CallableFunctions& functions) {
  if (format == ToolFormat::kXml) return XmlCalls(text, functions);
  return format == ToolFormat::kPython ? PythonCalls(text, functions) : GemmaCalls(text, functions);
}

}  // namespace coppice
