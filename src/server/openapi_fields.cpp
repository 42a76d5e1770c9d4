// The schemas of requests' fields. Most follow from the parser's table. A field that has a reader of its own
// has its schema here, and openapi_test.cpp gives the reader what the schema allows and what it forbids.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/openapi.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

struct ReaderSchema {
  std::string_view name;
  const char* schema;
};

// "null" is added to each list of types.
constexpr ReaderSchema kSchemas[] = {
    {"grammar",
     R"({"type": ["string"], "description": "the answer's form, in GBNF", "examples": ["root ::= \"a\""]})"},
    {"guided_regex",
     R"({"type": ["string"], "description": "the answer is a match", "examples": ["[ab]+"]})"},
    {"json_schema",
     R"({"description": "the answer is JSON that fits this schema", "examples": [{"type": "object"}]})"},
    {"guided_choice", R"({"type": ["array"], "items": {"type": "string"}, "minItems": 1,
      "description": "the answer is one of these", "examples": [["yes", "no"]]})"},
    {"response_format",
     R"({"type": ["object"], "properties": {"type": {"enum": ["text", "json_object", "json_schema"]},
      "json_schema": {"type": "object"}, "schema": {"type": "object"}}, "required": ["type"],
      "examples": [{"type": "text"}, {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}]})"},
    {"stream_options", R"({"type": ["object"], "properties": {"include_usage": {"type": "boolean"}},
      "examples": [{"include_usage": true}]})"},
    {"prune", R"({"type": ["boolean", "string", "object"], "description":
      "a method's spec, auto or none; false: none; an object has spec or method, and beside them the method's keys",
      "properties": {"spec": {"type": "string"}, "method": {"type": "string"}, "protect": {"type": "array"},
      "protect_first": {"type": "integer", "minimum": 0}, "protect_last": {"type": "integer", "minimum": 0},
      "confidence": {"type": "boolean"}, "complete": {"type": "boolean"}, "fallback": {}, "question": {}},
      "examples": ["none", "auto", false, {"method": "lazyllm"}]})"},
    {"prune_scope", R"({"type": ["string"], "enum": ["auto", "all", "new", null], "examples": ["new"]})"},
    {"prune_when", R"({"type": ["string"], "enum": ["pays", "always", null], "examples": ["always"]})"},
    {"prompt_cache_key", R"({"description": "a hint: requests with the same text belong together"})"},
    {"cache_control", R"({"description": "a hint: how long the prompt is worth keeping",
      "examples": [{"type": "ephemeral", "ttl": "1h"}]})"},
    {"t_max_predict_ms",
     R"({"type": ["number"], "maximum": 0, "description": "not supported", "examples": [0, -1]})"},
    {"prompt", R"({"type": ["string", "array", "object"], "description":
      "a text, a list of token ids, a list of either, or ids and texts mixed in one list",
      "examples": ["Once", [1, 2], ["Once", "Twice"], [[1, 2], "Once"], {"prompt_string": "Once"}]})"},
    {"content", R"({"type": ["string"], "examples": ["Once"]})"},
    {"messages", R"({"type": ["array"], "items": {"type": "object"}, "minItems": 1,
      "examples": [[{"role": "user", "content": "Hello"}]]})"},
    {"tokens",
     R"({"type": ["array"], "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}, "examples": [[1, 2]]})"},
    {"chat_template_kwargs",
     R"({"type": ["object"], "description": "the template's variables", "maxProperties": 256,
      "examples": [{"enable_thinking": false}]})"},
    {"continue_final_message", R"({"type": ["boolean"], "examples": [false]})"},
    {"tools",
     R"({"type": ["array"], "items": {"type": "object"}, "description": "functions that the model may call",
      "examples": [[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]]})"},
    {"tool_choice", R"({"type": ["string", "object"], "examples": ["auto", "none"]})"},
    {"add_special",
     R"({"type": ["boolean"], "description": "whether the tokenizer's own BOS is added", "examples": [true]})"},
    {"parse_special",
     R"({"type": ["boolean"], "description": "whether the text may name control tokens", "examples": [true]})"},
    {"input", R"({"type": ["string", "array", "object"], "description": "as a completion's prompt",
      "examples": ["Once", ["Once", "Twice"]]})"},
    {"encoding_format", R"({"type": ["string"], "enum": ["float", "base64", null], "examples": ["base64"]})"},
    {"pooling", R"({"type": ["string"], "enum": ["mean", "last", "none", null], "examples": ["last"]})"},
    {"enable_thinking", R"({"type": ["boolean"], "examples": [true]})"},
    {"reasoning_effort",
     R"({"type": ["string"], "enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", null],
      "examples": ["low"]})"},
    {"reasoning", R"({"type": ["object"], "examples": [{"effort": "low"}]})"},
    {"thinking",
     R"({"type": ["boolean", "object"], "examples": [true, {"type": "enabled", "budget_tokens": 100}]})"},
    {"thinking_budget_tokens",
     R"({"type": ["integer"], "minimum": -1, "description": "-1: no limit", "examples": [100]})"},
    {"reasoning_format",
     R"({"type": ["string"], "enum": ["none", "auto", "deepseek", "deepseek-legacy", null],
      "examples": ["none"]})"},
    {"max_tokens", R"({"type": ["integer"], "minimum": -1, "maximum": 2147483647,
      "description": "-1: until the model stops or the context is full", "examples": [16, -1]})"},
    {"top_k",
     R"({"type": ["integer"], "minimum": -1, "maximum": 1073741824, "description": "0 or -1: no limit",
      "examples": [40]})"},
    {"top_p", R"({"type": ["number"], "minimum": 0, "maximum": 1, "examples": [0.9]})"},
    {"typical_p", R"({"type": ["number"], "minimum": 0, "maximum": 1, "examples": [0.9]})"},
    {"samplers", R"({"type": ["array"], "items": {"type": "string"}, "maxItems": 64, "description":
      "llama.cpp's list; refused where it names other samplers than those that act, or another order",
      "examples": [["penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]]})"},
    {"repeat_penalty",
     R"({"type": ["number"], "minimum": 0, "description": "1 or 0: none", "examples": [1.1]})"},
    {"logit_bias", R"({"type": ["object", "array"], "description":
      "{\"ID\": bias}, or [[ID, bias], ...]; -100 and below, or false, bans a token", "examples": [{"5": -100}, [[5, 1.5]]]})"},
    {"dry_base", R"({"type": ["number"], "minimum": 0, "examples": [1.75]})"},
    {"dry_sequence_breakers",
     R"({"type": ["array"], "items": {"type": "string"}, "maxItems": 1024, "examples": [["\n"]]})"},
    {"seed", R"({"type": ["integer"], "description": "-1: a new one each time", "examples": [7, -1]})"},
    {"stop",
     R"({"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 1024, "examples": ["\n", ["a", "b"]]})"},
    {"stop_token_ids",
     R"({"type": ["array"], "items": {"type": "integer", "minimum": 0}, "maxItems": 1024, "examples": [[2]]})"},
    {"cache_salt", R"({"type": ["string"], "minLength": 1, "description":
      "up to 1,024 bytes; requests share cached prompts only with those that send the same", "examples": ["user 1"]})"},
    {"logprobs", R"({"type": ["integer", "boolean"], "minimum": 0, "maximum": 20, "not": {"const": true},
      "description": "false: none", "examples": [3, false]})"},
    {"n_probs", R"({"type": ["integer", "boolean"], "minimum": 0, "maximum": 20, "not": {"const": true},
      "description": "0 or false: none", "examples": [3, 0]})"},
};

std::vector<std::string> NamesOf(const Field& field) {
  std::vector<std::string> names;
  std::string_view rest = field.names;
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    names.emplace_back(rest.substr(0, space));
    rest = space == std::string_view::npos ? "" : rest.substr(space + 1);
  }
  return names;
}

ordered_json NumberSchema(const char* type, const Field& field) {
  ordered_json schema = {{"type", {type, "null"}}};
  const double any = std::numeric_limits<double>::max();
  const auto limit = [&](const char* name, double value) {
    if (std::abs(value) == any) return;
    schema[name] =
        value == std::floor(value) ? ordered_json(static_cast<int64_t>(value)) : ordered_json(value);
  };
  limit("minimum", field.low);
  limit("maximum", field.high);
  schema["description"] = std::string(field.range);
  return schema;
}

ordered_json SchemaOf(const Field& field, Parameters& defaults) {
  return std::visit(
      [&](const auto& target) -> ordered_json {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<T, Field::Ignored>) {
          return {{"description", "has no effect"}};
        } else if constexpr (std::is_same_v<T, Field::Neutral>) {
          ordered_json values = ordered_json::array({ordered_json::parse(target.json)});
          if (!values[0].is_null()) values.push_back(nullptr);
          return {{"enum", values}, {"description", "not supported: any other value is refused"}};
        } else if constexpr (std::is_same_v<T, Field::Custom>) {
          const char* text = SchemaOfReader(NamesOf(field).front());
          COPPICE_CHECK(text != nullptr);
          ordered_json schema = ordered_json::parse(text);
          if (schema.contains("type")) schema["type"].push_back("null");
          return schema;
        } else if constexpr (std::is_same_v<T, bool& (*)(Parameters&)>) {
          return {{"type", {"boolean", "null"}}, {"default", target(defaults)}};
        } else {
          const bool is_double = std::is_same_v<T, double& (*)(Parameters&)>;
          ordered_json schema = NumberSchema(is_double ? "number" : "integer", field);
          // `dimensions` has one that no request may send: the model's own.
          if (static_cast<double>(target(defaults)) >= field.low) schema["default"] = target(defaults);
          return schema;
        }
      },
      field.target);
}

// Of these the request needs one.
std::vector<std::string> NeededOn(Route route) {
  switch (route) {
    case kChat:
    case kApplyTemplate:
      return {"messages"};
    case kCompletions:
    case kNative:
      return {"prompt"};
    case kEmbeddings:
      return {"input", "content"};
    case kTokenize:
      return {"content", "prompt"};
    default:
      return {"tokens"};
  }
}

}  // namespace

const char* SchemaOfReader(std::string_view name) {
  const auto found = std::ranges::find(kSchemas, name, &ReaderSchema::name);
  return found == std::end(kSchemas) ? nullptr : found->schema;
}

ordered_json FieldsSchema(Route route, const Parameters& defaults) {
  Parameters of_server = defaults;
  ordered_json properties = ordered_json::object();
  for (const Field& field : Fields()) {
    if ((field.routes & route) == 0) continue;
    const std::vector<std::string> names = NamesOf(field);
    ordered_json schema = SchemaOf(field, of_server);
    if (field.matters != nullptr) schema["x-matters"] = "only beside other fields; not checked without them";
    for (const std::string& name : names) {
      properties[name] = schema;
      if (name != names.front()) properties[name]["x-same-as"] = names.front();
    }
  }
  ordered_json schema = {{"type", "object"}, {"properties", properties}};
  const std::vector<std::string> needed = NeededOn(route);
  if (needed.size() == 1) {
    schema["required"] = needed;
  } else {
    for (const std::string& name : needed) schema["anyOf"].push_back({{"required", {name}}});
  }
  return schema;
}

}  // namespace coppice
