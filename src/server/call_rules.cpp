#include "server/call_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "server/errors.h"
#include "server/typed_value.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using nlohmann::ordered_json;

constexpr int64_t kSmallRepeats = 64;
constexpr size_t kMaxNotes = 32;       // functions whose parameters are not wholly enforced
constexpr size_t kMaxNoteBytes = 256;  // of one
constexpr std::string_view kXmlValueEnd = "\n</parameter>\n";
constexpr std::string_view kGemmaText = "<|\"|>";

bool IsStrict(const ordered_json& function) {
  return function.contains("strict") && function["strict"] == true;
}

// An argument of a function that has properties.
struct Property {
  std::string name;
  bool is_required = false;
};

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

// Whether arguments beside the properties may come: those of functions that name none.
bool IsOpen(const ordered_json& function) {
  const ordered_json parameters = function.value("parameters", ordered_json());
  return parameters.is_object() && parameters.value("additionalProperties", ordered_json()) != false;
}

// The items with commas between them; those that are not required may be missing.
Expr Listed(const std::vector<Expr>& items, const std::vector<Property>& properties, std::string_view comma,
            Rules& rules) {
  Expr first = Sequence({});   // what may stand from an item on if it is the first
  Expr behind = Sequence({});  // if another stands before it
  for (size_t i = items.size(); i-- > 0;) {
    const Expr item = Rule(rules.Add(items[i]));
    const Expr with = Sequence({Text(comma), item, behind});
    const Expr begin = Sequence({item, behind});
    const bool required = properties[i].is_required;
    first = Rule(rules.Add(required ? begin : Choice({begin, first})));
    behind = Rule(rules.Add(required ? with : Choice({with, behind})));
  }
  return first;
}

Expr WordRule() {
  return Repeat(Chars({{'-', '-'}, {'.', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), 1, 64);
}

}  // namespace

CallRules::CallRules(const Parameters& p, ToolFormat format, Fitting fitting, Rules& rules,
                     WorkBudget& budget)
    : p_(p),
      format_(format),
      fitting_(fitting),
      rules_(rules),
      budget_(budget),
      space_(Rule(rules.Add(JsonSpace()))) {
  std::vector<Expr> calls;
  std::vector<Expr> named;
  for (const ordered_json& tool : *p.tools) {
    const ordered_json& function = tool["function"];
    const std::string name = function["name"];
    if (p.tool_choice == ToolChoice::kOne && name != p.tool_name) continue;
    calls.push_back(Call(function));
    if (format == ToolFormat::kMistral)
      named.push_back(Sequence({Text(name + "[ARGS]"), calls.back().parts.back()}));
  }
  const bool is_object =
      format == ToolFormat::kHermes || format == ToolFormat::kLlama || format == ToolFormat::kMistral;
  Expr call = Choice(std::move(calls));
  if (is_object)
    call = Sequence({Text("{"), space_, Text("\"name\":"), space_, std::move(call), space_, Text("}")});
  call_ = rules_.Add(std::move(call));
  named_ = rules_.Add(Choice(std::move(named)));
}

std::string CallRules::Mark() const {
  switch (format_) {
    case ToolFormat::kHermes:
    case ToolFormat::kXml:
      return "<tool_call>";
    case ToolFormat::kMistral:
      return "[TOOL_CALLS]";
    case ToolFormat::kPython:
      return "<|tool_call_start|>";
    case ToolFormat::kGemma4:
      return "<|tool_call>";
    default:
      return "";
  }
}

Expr CallRules::Call(const ordered_json& function) {
  const std::string name = function["name"];
  const auto is = [&](ToolFormat format) { return format_ == format; };
  if (is(ToolFormat::kXml))
    return Sequence({Text("<function=" + name + ">\n"), XmlArguments(function), Text("</function>")});
  if (is(ToolFormat::kPython)) return Sequence({Text(name + "("), PythonArguments(function), Text(")")});
  if (is(ToolFormat::kGemma4))
    return Sequence({Text("call:" + name + "{"), GemmaArguments(function), Text("}<tool_call|>")});
  const Expr arguments = Rule(rules_.Add(Arguments(function)));
  if (is(ToolFormat::kChannels)) {
    const Expr kind = Choice({Text(""), Text(" <|constrain|>json"), Text(" json"), Text(" code")});
    const std::string to = " to=functions." + name;
    return Sequence({Choice({Text("<|channel|>commentary" + to), Text(to + "<|channel|>commentary")}), kind,
                     Text("<|message|>"), arguments});
  }
  const char* key = is(ToolFormat::kLlama) ? "parameters" : "arguments";
  return Sequence({Text(ordered_json(name).dump()), Text(","), space_, Text(fmt::format("\"{}\":", key)),
                   space_, arguments});
}

Expr CallRules::CallsBehindMark() const {
  const Expr call = Rule(call_);
  const auto more = [&](std::vector<Expr> parts) {
    return p_.parallel_tool_calls ? Repeat(Sequence(std::move(parts)), 0) : Sequence({});
  };
  switch (format_) {
    case ToolFormat::kHermes:
    case ToolFormat::kXml: {
      const Expr whole = Sequence({space_, call, space_, Text("</tool_call>")});
      return Sequence({whole, more({space_, Text("<tool_call>"), whole})});
    }
    case ToolFormat::kLlama:
      return Sequence({call, more({Text(";"), space_, call})});
    case ToolFormat::kMistral: {
      const Expr list = Sequence({space_, Text("["), call, more({Text(","), space_, call}), Text("]")});
      const Expr one = Rule(named_);
      return Choice({list, Sequence({one, more({Text("[TOOL_CALLS]"), one})})});
    }
    case ToolFormat::kPython:
      return Sequence({Text("["), call, more({Text(","), space_, call}), Text("]<|tool_call_end|>")});
    case ToolFormat::kGemma4:
      return Sequence({call, more({Text("<|tool_call>"), call})});
    case ToolFormat::kChannels:
      return call;
  }
  return call;
}

// A schema that a grammar cannot keep is an error if the function is strict; otherwise the keywords that it
// cannot keep are noted.
Expr CallRules::Arguments(const ordered_json& function) {
  const ordered_json parameters = function.value("parameters", ordered_json());
  const std::string name = function["name"];
  if (!parameters.is_object() || parameters.empty()) return AddJsonObject(rules_);
  if (IsStrict(function)) {
    try {
      return AddJsonSchema(parameters, rules_, budget_);
    } catch (const Error& error) {
      throw BadField("tools", fmt::format("{}: {}", name, error.what()));
    }
  }
  if (fitting_ == Fitting::kObjects) {
    Note(name, {"parameters"});
    return AddJsonObject(rules_);
  }
  std::vector<std::string> dropped;
  Expr arguments = AddArguments(parameters, rules_, dropped, budget_,
                                fitting_ == Fitting::kFull ? limits::kMaxGrammarRepeats : kSmallRepeats);
  if (!dropped.empty()) Note(name, dropped);
  return arguments;
}

// The value of an argument, as JSON. Like Arguments(), but a schema is kept whole or not at all.
Expr CallRules::JsonValue(const ordered_json& function, const std::string& argument) {
  const std::string name = function["name"];
  const ordered_json& parameters = function["parameters"];
  ordered_json schema = parameters["properties"][argument];
  for (const char* definitions : {"$defs", "definitions"}) {
    if (schema.is_object() && parameters.contains(definitions)) schema[definitions] = parameters[definitions];
  }
  try {
    if (fitting_ != Fitting::kObjects || IsStrict(function)) return AddJsonSchema(schema, rules_, budget_);
  } catch (const Error& error) {
    if (IsStrict(function)) throw BadField("tools", fmt::format("{}: {}: {}", name, argument, error.what()));
  }
  Note(name, {argument});
  return AddJsonSchema(ordered_json::object(), rules_, budget_);
}

// What a text without quotes cannot keep.
void CallRules::NoteTexts(const ordered_json& function, const std::string& argument) {
  const ordered_json schema = ArgumentSchema(function, argument);
  std::vector<std::string> dropped;
  for (const char* keyword : {"pattern", "minLength", "maxLength"}) {
    if (schema.is_object() && schema.contains(keyword)) dropped.emplace_back(keyword);
  }
  if (dropped.empty()) return;
  const std::string name = function["name"];
  if (IsStrict(function))
    throw BadField(
        "tools", fmt::format("{}: {}: the model's form of calls cannot keep {}", name, argument, dropped[0]));
  Note(name, dropped);
}

Expr CallRules::XmlArguments(const ordered_json& function) {
  const std::vector<Property> properties = PropertiesOf(function);
  const Expr other = Sequence({Text("<parameter="), WordRule(), Text(">\n"), Until(kXmlValueEnd)});
  if (properties.empty()) return IsOpen(function) ? Repeat(other, 0) : Sequence({});
  std::vector<Expr> parts;
  for (const Property& property : properties) {
    const ordered_json schema = ArgumentSchema(function, property.name);
    const auto types = SchemaTypes(schema);
    const ordered_json words = schema.is_object() ? schema.value("enum", ordered_json()) : ordered_json();
    const auto is_text = [](const ordered_json& word) { return word.is_string(); };
    Expr value;
    if (words.is_array() && !words.empty() && std::ranges::all_of(words, is_text)) {
      std::vector<Expr> choices;
      for (const ordered_json& word : words) choices.push_back(Text(word.get_ref<const std::string&>()));
      value = Sequence({Choice(std::move(choices)), Text(kXmlValueEnd)});
    } else if (types.empty() || types.contains("string")) {
      NoteTexts(function, property.name);
      value = Until(kXmlValueEnd);
    } else {
      value = Sequence({JsonValue(function, property.name), Text(kXmlValueEnd)});
    }
    Expr argument = Sequence({Text("<parameter=" + property.name + ">\n"), std::move(value)});
    parts.push_back(property.is_required ? std::move(argument) : Optional(std::move(argument)));
  }
  return Sequence(std::move(parts));
}

Expr CallRules::PythonArguments(const ordered_json& function) {
  const std::vector<Property> properties = PropertiesOf(function);
  std::vector<Expr> items;
  for (const Property& property : properties)
    items.push_back(Sequence({Text(property.name + "="), JsonValue(function, property.name)}));
  if (!items.empty()) return Listed(items, properties, ", ", rules_);
  if (!IsOpen(function)) return Sequence({});
  const Expr any = AddJsonSchema(ordered_json::object(), rules_, budget_);
  const Expr item = Rule(rules_.Add(Sequence({WordRule(), Text("="), any})));
  return Optional(Sequence({item, Repeat(Sequence({Text(", "), item}), 0)}));
}

Expr CallRules::GemmaArguments(const ordered_json& function) {
  const std::vector<Property> properties = PropertiesOf(function);
  std::vector<Expr> items;
  for (const Property& property : properties) {
    NoteTexts(function, property.name);
    items.push_back(
        Sequence({Text(property.name + ":"), GemmaValue(ArgumentSchema(function, property.name))}));
  }
  if (!items.empty()) return Listed(items, properties, ",", rules_);
  if (!IsOpen(function)) return Sequence({});
  const Expr item = Rule(rules_.Add(Sequence({WordRule(), Text(":"), GemmaAny()})));
  return Optional(Sequence({item, Repeat(Sequence({Text(","), item}), 0)}));
}

// Of a type that the schema allows; what is within lists and objects may be anything.
Expr CallRules::GemmaValue(const ordered_json& schema) {
  const Expr quote = Text(kGemmaText);
  const ordered_json words = schema.is_object() ? schema.value("enum", ordered_json()) : ordered_json();
  std::vector<Expr> choices;
  for (const ordered_json& word : words.is_array() ? words : ordered_json::array()) {
    choices.push_back(word.is_string() ? Sequence({quote, Text(word.get_ref<const std::string&>()), quote})
                                       : Text(word.dump()));
  }
  if (!choices.empty()) return Choice(std::move(choices));
  for (const std::string& type : SchemaTypes(schema)) {
    if (type == "string") choices.push_back(Sequence({quote, Until(kGemmaText)}));
    if (type == "integer") choices.push_back(JsonInteger());
    if (type == "number") choices.push_back(JsonNumber());
    if (type == "boolean") choices.push_back(Choice({Text("true"), Text("false")}));
    if (type == "null") choices.push_back(Text("null"));
    if (type == "array" || type == "object") return GemmaAny();
  }
  return choices.empty() ? GemmaAny() : Choice(std::move(choices));
}

Expr CallRules::GemmaAny() {
  if (gemma_any_ >= 0) return Rule(gemma_any_);
  gemma_any_ = rules_.Add();
  const Expr value = Rule(gemma_any_);
  const Expr text = Sequence({Text(kGemmaText), Until(kGemmaText)});
  const Expr member = Sequence({Choice({text, WordRule()}), Text(":"), value});
  const auto list = [](const Expr& item) {
    return Optional(Sequence({item, Repeat(Sequence({Text(","), item}), 0)}));
  };
  rules_.rules[static_cast<size_t>(gemma_any_)] =
      Choice({text, JsonNumber(), Text("true"), Text("false"), Text("null"),
              Sequence({Text("["), list(value), Text("]")}), Sequence({Text("{"), list(member), Text("}")})});
  return value;
}

void CallRules::Note(const std::string& name, const std::vector<std::string>& keywords) {
  if (not_enforced_.size() >= kMaxNotes) return;
  std::string note = fmt::format("tools.{}: {}", name, fmt::join(keywords, ", "));
  if (note.size() > kMaxNoteBytes) note = note.substr(0, kMaxNoteBytes - 3) + "...";
  not_enforced_.push_back(std::move(note));
}

}  // namespace coppice
