#include "server/bare_calls.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/marks.h"
#include "formats/json.h"
#include "server/errors.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// The object that the value is, or that its text is; null if it is none.
ordered_json ObjectOf(const ordered_json& value) {
  if (!value.is_string()) return value.is_object() ? value : ordered_json();
  try {
    ordered_json parsed = ParseOrderedJson(value.get_ref<const std::string&>(), "call");
    return parsed.is_object() ? parsed : ordered_json();
  } catch (const Error&) {
    return nullptr;
  }
}

// The only member whose key `is` one; nullptr if there is none, or several.
template <typename Is>
const ordered_json* OnlyMember(const ordered_json& object, const Is& is) {
  const ordered_json* found = nullptr;
  for (const auto& [key, value] : object.items()) {
    if (!is(key)) continue;
    if (found != nullptr) return nullptr;
    found = &value;
  }
  return found;
}

}  // namespace

std::vector<std::string> ToolNames(const ordered_json& tools) {
  std::vector<std::string> names;
  for (const ordered_json& tool : tools) names.push_back(tool["function"]["name"]);
  return names;
}

AnswerParser::AnswerParser(ToolFormat format, const ordered_json& tools, bool bare)
    : format_(format),
      functions_{ToolNames(tools), &tools},
      undecided_(bare),
      scan_(functions_.names,
            format == ToolFormat::kHermes || format == ToolFormat::kXml ? ToolMarks(format).front() : ""),
      inner_(format, functions_.names, &tools) {}

std::vector<AnswerPart> AnswerParser::Push(std::string_view text) {
  if (!undecided_) return inner_.Push(text);
  held_ += text;
  undecided_ = std::ranges::all_of(text, [&](char c) { return scan_.Push(c); });
  if (undecided_ && !BeginsOwnCall()) return {};
  undecided_ = false;
  return inner_.Push(std::exchange(held_, {}));
}

bool AnswerParser::BeginsOwnCall() {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (format_ != ToolFormat::kLlama || first == held_.npos || held_[first] != '{') return false;
  return head_.Find(std::string_view(held_).substr(first), functions_) == CallHead::Found::kArguments;
}

std::vector<AnswerPart> AnswerParser::Flush() {
  if (undecided_) {
    if (std::vector<ToolCall> calls = Calls(); !calls.empty()) {
      held_.clear();
      std::vector<AnswerPart> parts;
      for (ToolCall& call : calls) AddCall(std::move(call), parts);
      return parts;
    }
  }
  undecided_ = false;
  std::vector<AnswerPart> parts = inner_.Push(std::exchange(held_, {}));
  for (AnswerPart& part : inner_.Flush()) {
    if (part.kind == AnswerPart::Kind::kText || part.kind == AnswerPart::Kind::kArguments) {
      AddPiece(part.kind, part.text, parts);
    } else {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<ToolCall> AnswerParser::Calls() const {
  std::vector<ToolCall> calls;
  if (!scan_.CanEnd()) return {};
  for (const CallScan::Value& value : scan_.values()) {
    OwnedJson<ordered_json> json;
    try {
      json = ParseOrderedJson(std::string_view(held_).substr(value.begin, value.end - value.begin), "call");
    } catch (const Error&) {
      return {};
    }
    if (!value.function.empty()) {
      calls.push_back({value.function, DumpJson(*json)});
    } else if (!AddCalls(*json, calls)) {
      return {};
    }
  }
  return calls;
}

// Adds the calls that the value is; returns false if it is anything else.
bool AnswerParser::AddCalls(const ordered_json& value, std::vector<ToolCall>& calls) const {
  if (value.is_array()) {
    return !value.empty() &&
           std::ranges::all_of(value, [&](const ordered_json& item) { return AddCalls(item, calls); });
  }
  if (!value.is_object()) return false;
  const ordered_json* wrapped = OnlyMember(value, IsWrapperKey);
  if (wrapped != nullptr && wrapped->is_structured() && OnlyMember(value, IsArgumentsKey) == nullptr)
    return AddCalls(*wrapped, calls);
  // {"type": "function", "name": N} has one name; "function" names the function only as a text.
  const ordered_json* name = OnlyMember(value, IsNameKey);
  const ordered_json* given = OnlyMember(value, IsArgumentsKey);
  if (name == nullptr || given == nullptr || !name->is_string()) return false;
  ToolCall call{*name, ""};
  const OwnedJson<ordered_json> arguments = ObjectOf(*given);
  if (!arguments->is_object() || !functions_.Has(call.name) || EchoesDefinition(call.name, *arguments))
    return false;
  call.arguments = DumpJson(*arguments);
  calls.push_back(std::move(call));
  return true;
}

// A model that is asked what it can do repeats the function's definition, whose parameters are a schema.
bool AnswerParser::EchoesDefinition(const std::string& name, const ordered_json& arguments) const {
  return std::ranges::any_of(*functions_.tools, [&](const ordered_json& tool) {
    const ordered_json& function = tool["function"];
    const auto schema = function.find("parameters");
    if (function["name"] != name || schema == function.end() || !schema->is_object() || schema->empty())
      return false;
    if (arguments == *schema) return true;
    const auto own = schema->find("properties");
    const auto type = arguments.find("type");
    return type != arguments.end() && *type == "object" && arguments.contains("properties") &&
           !(own != schema->end() && own->is_object() && own->contains("properties"));
  });
}

}  // namespace coppice
