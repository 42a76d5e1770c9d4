#include "server/call_object.h"

#include <utility>

#include "base/error.h"
#include "engine/marks.h"
#include "formats/json.h"
#include "server/errors.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

bool HoldsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

// The object that the text is; null if it is none, or too deep or wide to be taken from a model.
ordered_json ParsedObject(std::string_view text) {
  try {
    ordered_json value = ParseOrderedJson(text, "call");
    return value.is_object() ? value : ordered_json();
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

std::optional<size_t> ObjectEnd::Find(std::string_view text) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return at + 1;
    }
  }
  return std::nullopt;
}

CallHead::Found CallHead::Find(std::string_view text, const CallableFunctions& functions) {
  while (found_ == Found::kMore && at_ < text.size()) {
    Take(text, functions);
    if (found_ == Found::kMore) ++at_;
  }
  return found_;
}

void CallHead::Take(std::string_view text, const CallableFunctions& functions) {
  const char c = text[at_];
  if (in_string_) {
    if (!std::exchange(escaped_, false)) {
      escaped_ = c == '\\';
      has_escapes_ |= escaped_;
      in_string_ = c != '"';
      if (!in_string_ && depth_ == 1) EndString(text.substr(string_, at_ - string_), functions);
    }
    return;
  }
  if (std::string_view(kBlanks).find(c) != std::string_view::npos) return;
  if (depth_ == 1 && is_value_ && HoldsArguments(key_)) {
    found_ = c == '{' && !name_.empty() ? Found::kArguments : Found::kWhole;
  } else if (c == '"') {
    in_string_ = true;
    has_escapes_ = false;
    string_ = at_ + 1;
  } else if (c == '{' || c == '[') {
    if (depth_++ == 1 && !is_value_) found_ = Found::kWhole;
  } else if (c == '}' || c == ']') {
    if (--depth_ == 0) found_ = Found::kWhole;
  } else if (depth_ == 1 && (c == ':' || c == ',')) {
    is_value_ = c == ':';
  } else if (depth_ == 1 && !is_value_) {
    found_ = Found::kWhole;
  }
}

void CallHead::EndString(std::string_view string, const CallableFunctions& functions) {
  if (!is_value_) {
    key_ = string;
    if (has_escapes_) found_ = Found::kWhole;
  } else if (key_ == "name") {
    if (has_escapes_ || !name_.empty() || !functions.Has(string)) found_ = Found::kWhole;
    name_ = string;
  }
}

std::optional<ToolCall> CallOf(const std::string& object) {
  const OwnedJson<ordered_json> owned = ParsedObject(object);
  const ordered_json& json = *owned;
  if (!json.is_object()) return std::nullopt;
  if (!json.contains("name") || !json["name"].is_string() || json["name"].empty()) return std::nullopt;
  ToolCall call{json["name"], "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    if (!json.contains(key)) continue;
    const ordered_json& given = json[key];
    const ordered_json arguments =
        given.is_string() ? ParsedObject(given.get_ref<const std::string&>()) : given;
    if (!arguments.is_object()) return std::nullopt;
    call.arguments = DumpJson(arguments);
    return call;
  }
  return call;
}

ordered_json ArgumentsObject(const std::string& arguments) {
  if (ordered_json whole = ParsedObject(arguments); whole.is_object()) return whole;
  ObjectEnd end;
  int lists = 0;
  std::optional<size_t> comma;  // the one behind the last member that came whole
  while (end.at < arguments.size() && !end.Find(std::string_view(arguments).substr(0, end.at + 1))) {
    if (end.in_string) continue;
    const char c = arguments[end.at - 1];
    lists += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && end.depth == 1 && lists == 0) comma = end.at - 1;
  }
  ordered_json begun = comma ? ParsedObject(arguments.substr(0, *comma) + "}") : ordered_json();
  return begun.is_object() ? begun : ordered_json::object();
}

}  // namespace coppice
