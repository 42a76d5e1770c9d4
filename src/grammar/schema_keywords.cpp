#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_text.h"
#include "grammar/number_range.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using Json = nlohmann::ordered_json;

// Keywords that belong to a type of values, so that a schema without `type` means that type.
struct TypeKeywords {
  const char* type;
  std::vector<std::string_view> keywords;
};
const std::vector<TypeKeywords>& KeywordsOfTypes() {
  static const std::vector<TypeKeywords> kTypes{
      {"object",
       {"properties", "required", "additionalProperties", "minProperties", "maxProperties",
        "patternProperties"}},
      {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
  return kTypes;
}

bool IsOfType(const Json& value, const std::vector<std::string>& types) {
  const auto is = [&](const std::string& type) {
    return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
           (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
           (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
           (type == "integer" && value.is_number() && std::floor(value.get<double>()) == value.get<double>());
  };
  return std::ranges::any_of(types, is);
}

}  // namespace

std::vector<std::string> SchemaTypes(const Json& schema) {
  constexpr std::array kAll{"object", "array", "string", "number", "boolean", "null"};
  std::vector<std::string> types;
  if (schema.contains("type")) {
    const Json list = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    for (const Json& type : list) {
      const bool known = type == "integer" || std::ranges::find(kAll, type) != kAll.end();
      if (!known) throw Error("type {} is none of JSON's", type.dump().substr(0, 40));
      types.push_back(type);
    }
    return types;
  }
  for (const TypeKeywords& type : KeywordsOfTypes()) {
    if (std::ranges::any_of(type.keywords,
                            [&](std::string_view keyword) { return schema.contains(keyword); }))
      types.emplace_back(type.type);
  }
  if (types.empty()) types.assign(kAll.begin(), kAll.end());
  return types;
}

bool HasKeywordsOf(const std::string& type, const Json& schema) {
  for (const TypeKeywords& known : KeywordsOfTypes()) {
    if (type != known.type) continue;
    return std::ranges::any_of(known.keywords,
                               [&](std::string_view keyword) { return schema.contains(keyword); });
  }
  return false;
}

Expr SchemaValues(const Json& schema) {
  for (const TypeKeywords& type : KeywordsOfTypes()) {
    for (const std::string_view keyword : type.keywords) {
      if (schema.contains(keyword)) throw Error("{} beside enum or const is not supported", keyword);
    }
  }
  Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
  if (!values.is_array() || values.empty()) throw Error("enum is not a list of values");
  std::vector<Expr> choices;
  for (const Json& value : values) {
    if (schema.contains("const") && value != schema["const"]) continue;
    if (schema.contains("type") && !IsOfType(value, SchemaTypes(schema))) continue;
    choices.push_back(Text(value.dump()));
  }
  return Choice(std::move(choices));
}

int64_t SchemaCount(const Json& schema, const char* keyword, int64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > limits::kMaxGrammarRepeats ||
      std::floor(value.get<double>()) != value.get<double>()) {
    throw Error("{} is not a whole number from 0 to {}", keyword, limits::kMaxGrammarRepeats);
  }
  return static_cast<int64_t>(value.get<double>());
}

Expr SchemaNumber(const Json& schema, bool whole) {
  if (schema.contains("multipleOf")) {
    if (schema["multipleOf"] != 1) throw Error("multipleOf is not supported, except 1");
    whole = true;
  }
  NumberBounds bounds;
  const auto bound = [&](const char* keyword, const char* exclusive, std::optional<double>& value, bool& open,
                         int sign) {
    for (const char* name : {keyword, exclusive}) {
      if (!schema.contains(name) || schema[name].is_boolean()) continue;
      if (!schema[name].is_number()) throw Error("{} is not a number", name);
      const double here = schema[name].get<double>();
      const bool here_open = name == exclusive || (schema.contains(exclusive) && schema[exclusive] == true);
      if (!value || sign * here > sign * *value || (here == *value && here_open)) {
        value = here;
        open = here_open;
      }
    }
  };
  bound("minimum", "exclusiveMinimum", bounds.low, bounds.low_is_open, 1);
  bound("maximum", "exclusiveMaximum", bounds.high, bounds.high_is_open, -1);
  if (bounds.low || bounds.high) return NumbersBetween(bounds, whole);
  return whole ? JsonInteger() : JsonNumber();
}

void RefuseKeywords(const Json& schema) {
  for (const char* keyword :
       {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames",
        "contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
        "$recursiveRef", "extends", "disallow"}) {
    if (schema.contains(keyword)) throw Error("{} is not supported", keyword);
  }
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != false)
    throw Error("uniqueItems is not supported");
}

}  // namespace coppice
