#include "server/call_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "server/call_forms.h"
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
constexpr int kMostGemmaDepth = 8;  // of lists and objects that keep their schema
constexpr std::string_view kGemmaText = "<|\"|>";

bool IsStrict(const ordered_json& function) {
  return function.contains("strict") && function["strict"] == true;
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

bool IsOfTexts(std::string_view keyword) {
  return keyword == "pattern" || keyword == "minLength" || keyword == "maxLength";
}

// Keywords that say nothing about which values fit.
bool IsAnnotation(std::string_view keyword) {
  static const std::set<std::string, std::less<>> kNames{"title",    "description", "default", "examples",
                                                         "nullable", "deprecated",  "$schema", "$comment"};
  return kNames.contains(keyword);
}

Expr GemmaText(Expr inner) { return Sequence({Text(kGemmaText), std::move(inner), Text(kGemmaText)}); }

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
    case ToolFormat::kArgKeys:
      return "<tool_call>";
    case ToolFormat::kMistral:
      return "[TOOL_CALLS]";
    case ToolFormat::kPython:
      return "<|tool_call_start|>";
    case ToolFormat::kGemma4:
      return "<|tool_call>";
    case ToolFormat::kInvokes:
      return "<minimax:tool_call>";
    default:
      return "";
  }
}

Expr CallRules::Call(const ordered_json& function) {
  const std::string name = function["name"];
  const auto is = [&](ToolFormat format) { return format_ == format; };
  if (is(ToolFormat::kXml))
    return Sequence({Text("<function=" + name + ">\n"), TaggedArguments(function), Text("</function>")});
  if (is(ToolFormat::kArgKeys)) return Sequence({Text(name), space_, TaggedArguments(function)});
  if (is(ToolFormat::kInvokes) || is(ToolFormat::kAtem)) {
    const XmlTags& tags = XmlTagsOf(format_);
    const Expr call = Sequence({Text(fmt::format("{}\"{}\">", tags.function, name)), space_,
                                TaggedArguments(function), Text(tags.function_end)});
    if (is(ToolFormat::kInvokes)) return call;
    return Sequence({Text(fmt::format(" to={}<|message|><atem:function_calls>", name)), space_, call, space_,
                     Text("</atem:function_calls>")});
  }
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
    case ToolFormat::kArgKeys:
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
    case ToolFormat::kInvokes:
      return Sequence({space_, call, more({space_, call}), space_, Text("</minimax:tool_call>")});
    case ToolFormat::kChannels:
    case ToolFormat::kAtem:
      return call;
  }
  return call;
}

std::optional<Expr> CallRules::Kept(const ordered_json& function, const ordered_json& schema, Adder* add) {
  const std::string name = function["name"];
  if (IsStrict(function)) {
    try {
      return AddJsonSchema(schema, rules_, budget_);
    } catch (const Error& error) {
      throw BadField("tools", fmt::format("{}: {}", name, error.what()));
    }
  }
  if (fitting_ == Fitting::kObjects) {
    Note(name, {"parameters"});
    return std::nullopt;
  }
  std::vector<std::string> dropped;
  Expr kept = add(schema, rules_, dropped, budget_,
                  fitting_ == Fitting::kFull ? limits::kMaxGrammarRepeats : kSmallRepeats);
  if (!dropped.empty()) Note(name, dropped);
  return kept;
}

Expr CallRules::Arguments(const ordered_json& function) {
  const ordered_json parameters = function.value("parameters", ordered_json());
  if (!parameters.is_object() || parameters.empty()) return AddJsonObject(rules_);
  std::optional<Expr> kept = Kept(function, parameters, &AddArguments);
  return kept ? *std::move(kept) : AddJsonObject(rules_);
}

Expr CallRules::JsonValue(const ordered_json& function, ordered_json schema) {
  const ordered_json& parameters = function["parameters"];
  for (const char* definitions : {"$defs", "definitions"}) {
    if (schema.is_object() && parameters.contains(definitions)) schema[definitions] = parameters[definitions];
  }
  std::optional<Expr> kept = Kept(function, schema, &AddArgument);
  return kept ? *std::move(kept) : AddJsonSchema(ordered_json::object(), rules_, budget_);
}

// Keywords of a schema that a form cannot keep.
void CallRules::Drop(const ordered_json& function, const ordered_json& schema,
                     const std::function<bool(std::string_view)>& keeps) {
  if (!schema.is_object()) return;
  std::vector<std::string> dropped;
  for (const auto& [keyword, value] : schema.items()) {
    if (!keeps(keyword)) dropped.push_back(keyword);
  }
  if (dropped.empty()) return;
  const std::string name = function["name"];
  if (IsStrict(function))
    throw BadField("tools",
                   fmt::format("{}: the model's form of calls cannot keep {}", name, dropped.front()));
  Note(name, dropped);
}

Expr CallRules::TagOf(Expr name) const {
  if (format_ == ToolFormat::kXml) return Sequence({Text("<parameter="), std::move(name), Text(">\n")});
  if (format_ != ToolFormat::kArgKeys)
    return Sequence({Text(fmt::format("{}\"", XmlTagsOf(format_).parameter)), std::move(name), Text("\">")});
  return Sequence({Text("<arg_key>"), std::move(name), Text("</arg_key>"), space_, Text("<arg_value>")});
}

Expr CallRules::TaggedArguments(const ordered_json& function) {
  const std::vector<Property> properties = PropertiesOf(function);
  const bool is_xml = format_ == ToolFormat::kXml;
  const std::string_view end_tag = is_xml                            ? kXmlValueEnd
                                   : format_ == ToolFormat::kArgKeys ? "</arg_value>"
                                                                     : XmlTagsOf(format_).parameter_end;
  const Expr behind = is_xml ? Sequence({}) : space_;
  const Expr other = Sequence({TagOf(WordRule()), Until(end_tag), behind});
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
      value = Sequence({Choice(std::move(choices)), Text(end_tag)});
    } else if (types.empty() || types.contains("string")) {
      Drop(function, schema, [](std::string_view keyword) { return !IsOfTexts(keyword); });
      value = Until(end_tag);
    } else {
      value =
          Sequence({JsonValue(function, function["parameters"]["properties"][property.name]), Text(end_tag)});
    }
    Expr argument = Sequence({TagOf(Text(property.name)), std::move(value), behind});
    parts.push_back(property.is_required ? std::move(argument) : Optional(std::move(argument)));
  }
  return Sequence(std::move(parts));
}

Expr CallRules::PythonArguments(const ordered_json& function) {
  const std::vector<Property> properties = PropertiesOf(function);
  std::vector<Expr> items;
  for (const Property& property : properties)
    items.push_back(Sequence({Text(property.name + "="),
                              JsonValue(function, function["parameters"]["properties"][property.name])}));
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
    const ordered_json schema = ArgumentSchema(function, property.name);
    items.push_back(Sequence({Text(property.name + ":"), GemmaValue(function, schema, 0)}));
  }
  if (!items.empty()) return Listed(items, properties, ",", rules_);
  if (!IsOpen(function)) return Sequence({});
  const Expr item = Rule(rules_.Add(Sequence({WordRule(), Text(":"), GemmaAny()})));
  return Optional(Sequence({item, Repeat(Sequence({Text(","), item}), 0)}));
}

// Of schemas with one type, or with several without parts; others are any values.
Expr CallRules::GemmaValue(const ordered_json& function, const ordered_json& schema, int depth) {
  const auto types = SchemaTypes(schema);
  const auto is_simple = [](const std::string& type) {
    return type == "integer" || type == "number" || type == "boolean" || type == "null";
  };
  const ordered_json words = schema.is_object() ? schema.value("enum", ordered_json()) : ordered_json();
  const auto is_word = [](const ordered_json& word) { return word.is_primitive(); };
  if (words.is_array() && !words.empty() && std::ranges::all_of(words, is_word)) {
    std::vector<Expr> choices;
    for (const ordered_json& word : words)
      choices.push_back(word.is_string() ? GemmaText(Text(word.get_ref<const std::string&>()))
                                         : Text(word.dump()));
    return Choice(std::move(choices));
  }
  if (!types.empty() && std::ranges::all_of(types, is_simple)) return JsonValue(function, schema);
  if (types.size() == 1 && *types.begin() == "string" && schema.contains("type")) {
    Drop(function, schema, [](std::string_view keyword) { return !IsOfTexts(keyword); });
    return Sequence({Text(kGemmaText), Until(kGemmaText)});
  }
  const bool is_list = types.size() == 1 && *types.begin() == "array" && schema.contains("type");
  const bool is_object = types.size() == 1 && *types.begin() == "object" && schema.contains("properties") &&
                         schema["properties"].is_object() && !schema["properties"].empty();
  if (depth >= kMostGemmaDepth || fitting_ == Fitting::kObjects || !(is_list || is_object)) {
    Drop(function, schema, IsAnnotation);
    return GemmaAny();
  }
  Drop(function, schema, [&](std::string_view keyword) {
    return IsAnnotation(keyword) || keyword == "type" ||
           (is_list ? keyword == "items" || keyword == "minItems" || keyword == "maxItems"
                    : keyword == "properties" || keyword == "required" || keyword == "additionalProperties");
  });
  return is_list ? GemmaList(function, schema, depth) : GemmaObject(function, schema, depth);
}

Expr CallRules::GemmaList(const ordered_json& function, const ordered_json& schema, int depth) {
  const auto count = [&](const char* name, int64_t otherwise) {
    const ordered_json value = schema.value(name, ordered_json());
    const bool is_count = value.is_number_unsigned() && value <= kSmallRepeats;
    return is_count ? value.get<int64_t>() : otherwise;
  };
  const Expr item = Rule(rules_.Add(GemmaValue(function, schema.value("items", ordered_json()), depth + 1)));
  const int64_t least = count("minItems", 0);
  const int64_t most = count("maxItems", kNoLimit);
  if (most == 0) return Text("[]");
  const Expr more = Repeat(Sequence({Text(","), item}), std::max<int64_t>(least - 1, 0),
                           most == kNoLimit ? kNoLimit : std::max(most, least) - 1);
  const Expr items = Sequence({item, more});
  return Sequence({Text("["), least == 0 ? Optional(items) : items, Text("]")});
}

Expr CallRules::GemmaObject(const ordered_json& function, const ordered_json& schema, int depth) {
  const std::vector<Property> properties = PropertiesOf({{"parameters", schema}});
  std::vector<Expr> items;
  for (const Property& property : properties) {
    const Expr value = GemmaValue(function, schema["properties"][property.name], depth + 1);
    items.push_back(Sequence({Text(property.name + ":"), value}));
  }
  return Sequence({Text("{"), Listed(items, properties, ",", rules_), Text("}")});
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
