#include "server/typed_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "engine/marks.h"
#include "formats/json.h"
#include "text/unicode/unicode.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;
using Types = std::set<std::string, std::less<>>;

constexpr int kMostReferences = 8;
constexpr int kMostLiteralDepth = limits::kMaxJsonDepth;
constexpr std::string_view kGemmaQuote = "<|\"|>";

ordered_json Discarded() { return ordered_json(ordered_json::value_t::discarded); }

const ordered_json* MemberOf(const ordered_json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() ? nullptr : &*found;
}

// The types that a schema names, those of its alternatives and of its constants too.
void AddTypes(const ordered_json& schema, Types& types, int depth) {
  if (depth > kMostReferences) return;
  if (const ordered_json* type = MemberOf(schema, "type")) {
    if (type->is_string()) types.insert(type->get<std::string>());
    for (const ordered_json& one : type->is_array() ? *type : ordered_json::array()) {
      if (one.is_string()) types.insert(one.get<std::string>());
    }
    return;
  }
  const auto add_value = [&](const ordered_json& value) {
    types.insert(value.is_number_integer() ? "integer"
                 : value.is_number()       ? "number"
                 : value.is_string()       ? "string"
                                           : value.type_name());
  };
  if (const ordered_json* constant = MemberOf(schema, "const")) add_value(*constant);
  if (const ordered_json* list = MemberOf(schema, "enum"); list != nullptr && list->is_array())
    std::ranges::for_each(*list, add_value);
  for (const char* name : {"anyOf", "oneOf", "allOf"}) {
    const ordered_json* list = MemberOf(schema, name);
    if (list == nullptr || !list->is_array()) continue;
    for (const ordered_json& one : *list) AddTypes(one, types, depth + 1);
  }
  if (MemberOf(schema, "properties") != nullptr) types.insert("object");
  if (MemberOf(schema, "items") != nullptr) types.insert("array");
}

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  return first == text.npos ? "" : WithoutBlanksAtEnd(text.substr(first));
}

bool Fits(const ordered_json& value, const Types& types) {
  const auto has = [&](const char* type) { return types.contains(type); };
  if (value.is_boolean()) return has("boolean");
  if (value.is_null()) return has("null");
  if (value.is_number_integer()) return has("integer") || has("number");
  if (value.is_number()) return has("number") || (has("integer") && std::floor(value.get<double>()) == value);
  if (value.is_object()) return has("object");
  return value.is_array() && has("array");
}

ordered_json Word(std::string_view word, bool bare) {
  if (word == "true" || word == "True") return true;
  if (word == "false" || word == "False") return false;
  if (word == "null" || word == "None") return nullptr;
  const bool numeric = !word.empty() && (word[0] == '-' || word[0] == '+' || word[0] == '.' ||
                                         (word[0] >= '0' && word[0] <= '9'));
  if (numeric) {
    std::string json(word[0] == '+' ? word.substr(1) : word);
    if (json.starts_with('.')) json.insert(0, "0");
    if (json.ends_with('.')) json += '0';
    ordered_json number = ordered_json::parse(json, nullptr, false);
    if (number.is_number()) return number;
  }
  return bare && !word.empty() ? ordered_json(word) : Discarded();
}

void AddEscape(std::string_view& text, std::string& out) {
  static constexpr std::string_view kNames = "ntrbf0";
  static constexpr std::string_view kMeant("\n\t\r\b\f\0", 6);
  const char c = text.front();
  text.remove_prefix(1);
  if (const size_t at = kNames.find(c); at != kNames.npos) {
    out += kMeant[at];
  } else if (c == '\\' || c == '\'' || c == '"' || c == '/') {
    out += c;
  } else if (const size_t digits = c == 'x'   ? 2
                                   : c == 'u' ? 4
                                   : c == 'U' ? 8
                                              : 0;
             digits > 0 && text.size() >= digits) {
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + digits, code, 16);
    const bool is_character = error == std::errc() && end == text.data() + digits && code <= 0x10FFFF &&
                              !(code >= 0xD800 && code <= 0xDFFF);
    if (!is_character) {
      out += '\\';
      out += c;
      return;
    }
    AppendUtf8(static_cast<char32_t>(code), out);
    text.remove_prefix(digits);
  } else {
    out += '\\';
    out += c;
  }
}

// A quote within a text that is quoted so is often not escaped: it ends the text only in front of what may
// follow a value.
bool EndsText(std::string_view behind) {
  SkipBlanks(behind);
  return behind.empty() || std::string_view(",:)]}").find(behind.front()) != std::string_view::npos;
}

ordered_json TakeQuoted(std::string_view& text) {
  const bool is_gemma = text.starts_with(kGemmaQuote);
  std::string_view quote = is_gemma ? kGemmaQuote : text.substr(0, 1);
  for (const std::string_view triple : {R"(""")", "'''"}) {
    if (text.starts_with(triple)) quote = triple;
  }
  text.remove_prefix(quote.size());
  std::string out;
  while (!text.empty()) {
    if (text.starts_with(quote) && (quote.size() > 1 || EndsText(text.substr(1)))) {
      text.remove_prefix(quote.size());
      return out;
    }
    const char c = text.front();
    text.remove_prefix(1);
    if (c == '\\' && !is_gemma && !text.empty()) {
      AddEscape(text, out);
    } else {
      out += c;
    }
  }
  return Discarded();
}

bool IsQuoted(std::string_view text) {
  return text.starts_with(kGemmaQuote) || text.starts_with('"') || text.starts_with('\'');
}

ordered_json TakeValue(std::string_view& text, bool bare, int depth);

// `closes`: the bracket behind the last item.
ordered_json TakeItems(std::string_view& text, bool bare, int depth, char closes) {
  const bool is_object = closes == '}';
  ordered_json items = is_object ? ordered_json::object() : ordered_json::array();
  text.remove_prefix(1);
  SkipBlanks(text);
  while (!text.empty() && text.front() != closes) {
    std::string key;
    if (items.size() >= kMaxOrderedKeys && is_object) return Discarded();
    if (is_object) {
      const ordered_json name = TakeKey(text);
      SkipBlanks(text);
      if (!name.is_string() || !SkipText(text, ":")) return Discarded();
      key = name;
    }
    ordered_json value = TakeValue(text, bare, depth + 1);
    if (value.is_discarded()) return value;
    if (is_object) {
      items[key] = std::move(value);
    } else {
      items.push_back(std::move(value));
    }
    SkipBlanks(text);
    if (!SkipText(text, ",") && !text.starts_with(closes)) return Discarded();
    SkipBlanks(text);
  }
  if (text.empty()) return Discarded();
  text.remove_prefix(1);
  return items;
}

ordered_json TakeValue(std::string_view& text, bool bare, int depth) {
  SkipBlanks(text);
  if (text.empty() || depth > kMostLiteralDepth) return Discarded();
  if (IsQuoted(text)) return TakeQuoted(text);
  if (text.front() == '{') return TakeItems(text, bare, depth, '}');
  if (text.front() == '[') return TakeItems(text, bare, depth, ']');
  const size_t end = std::min(text.find_first_of(",)]}"), text.size());
  const std::string_view word = WithoutBlanksAtEnd(text.substr(0, end));
  text.remove_prefix(end);
  return Word(word, bare);
}

}  // namespace

void SkipBlanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
}

bool SkipText(std::string_view& text, std::string_view wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(wanted.size());
  return true;
}

ordered_json TakeKey(std::string_view& text) {
  SkipBlanks(text);
  if (IsQuoted(text)) return TakeQuoted(text);
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
  };
  const auto end = std::ranges::find_if_not(text, is_part);
  const auto size = static_cast<size_t>(end - text.begin());
  if (size == 0) return Discarded();
  const std::string key(text.substr(0, size));
  text.remove_prefix(size);
  return key;
}

ordered_json TakeLiteral(std::string_view& text, bool bare) { return TakeValue(text, bare, 0); }

ordered_json ParseLiteral(std::string_view text, bool bare) {
  ordered_json value = TakeLiteral(text, bare);
  SkipBlanks(text);
  return text.empty() ? value : Discarded();
}

std::vector<Property> PropertiesOf(const ordered_json& function) {
  std::vector<Property> list;
  const ordered_json parameters = function.value("parameters", ordered_json());
  if (!parameters.is_object() || !parameters.contains("properties") || !parameters["properties"].is_object())
    return list;
  const ordered_json required = parameters.value("required", ordered_json::array());
  for (const auto& [name, schema] : parameters["properties"].items()) {
    const bool is_required =
        std::any_of(required.begin(), required.end(), [&](const ordered_json& one) { return one == name; });
    list.push_back({name, is_required});
  }
  return list;
}

bool IsOpen(const ordered_json& function) {
  const ordered_json parameters = function.value("parameters", ordered_json());
  return parameters.is_object() && parameters.value("additionalProperties", ordered_json()) != false;
}

ordered_json ArgumentSchema(const ordered_json& function, std::string_view argument) {
  const ordered_json* parameters = MemberOf(function, "parameters");
  const ordered_json* properties = parameters == nullptr ? nullptr : MemberOf(*parameters, "properties");
  const ordered_json* schema =
      properties == nullptr ? nullptr : MemberOf(*properties, std::string(argument).c_str());
  for (int i = 0; schema != nullptr && i < kMostReferences; ++i) {
    const ordered_json* reference = MemberOf(*schema, "$ref");
    if (reference == nullptr || !reference->is_string()) break;
    const auto& place = reference->get_ref<const std::string&>();
    const size_t slash = place.rfind('/');
    const ordered_json* list = nullptr;
    for (const char* name : {"$defs", "definitions"}) {
      if (place.substr(0, std::min(slash, place.size())) == std::string("#/") + name)
        list = MemberOf(*parameters, name);
    }
    schema = list == nullptr ? nullptr : MemberOf(*list, place.substr(slash + 1).c_str());
  }
  return schema == nullptr ? ordered_json() : *schema;
}

Types SchemaTypes(const ordered_json& schema) {
  Types types;
  AddTypes(schema, types, 0);
  return types;
}

ordered_json TypedValue(std::string_view text, const ordered_json& schema) {
  Types types = SchemaTypes(schema);
  if (types.empty()) types = {"object", "array", "string"};
  if (types.size() == 1 && types.contains("string")) return text;
  const std::string_view trimmed = Trimmed(text);
  ordered_json value;
  try {
    value = ParseOrderedJson(trimmed, "argument");
  } catch (const Error&) {
    value = ParseLiteral(trimmed);
  }
  if (value.is_discarded() || !Fits(value, types)) return text;
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_number_float() && !types.contains("number") && std::abs(value.get<double>()) <= kExact)
    return static_cast<int64_t>(value.get<double>());
  return value;
}

}  // namespace coppice
