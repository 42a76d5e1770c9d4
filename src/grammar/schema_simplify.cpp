#include "grammar/schema_simplify.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_pattern.h"
#include "grammar/schema_values.h"

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kOthers{"uniqueItems",
                             "propertyNames",
                             "not",
                             "if",
                             "then",
                             "else",
                             "contains",
                             "minContains",
                             "maxContains",
                             "dependentSchemas",
                             "$anchor",
                             "dependentRequired",
                             "unevaluatedItems",
                             "dependencies",
                             "minProperties",
                             "unevaluatedProperties",
                             "patternProperties"};

// Schemas for the same value, whose members and items count as evaluated.
bool HasParts(const Json& schema) {
  return std::ranges::any_of(
      std::array{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"},
      [&](const char* keyword) { return schema.contains(keyword); });
}

bool IsEmptyObject(const Json& schema, const char* keyword) {
  return schema.contains(keyword) && schema[keyword].is_object() && schema[keyword].empty();
}

// Texts are what names are anyway.
bool AllowsAllNames(const Json& schema) {
  if (!schema.is_object()) return AllowsAll(schema);
  return std::ranges::all_of(schema.items(), [](const auto& item) {
    return IsAnnotation(item.key()) || (item.key() == "type" && item.value() == "string") ||
           (item.key() == "minLength" && item.value() == 0);
  });
}

// Names that may only be some (zod's records of an enum) are properties, and no others are allowed.
void SimplifyNames(Json& schema) {
  if (AllowsAllNames(schema["propertyNames"])) {
    schema.erase("propertyNames");
    return;
  }
  const Json names = schema["propertyNames"];
  if (!names.is_object() || !names.contains("enum") || !names["enum"].is_array()) return;
  const bool is_alone = std::ranges::all_of(names.items(), [](const auto& item) {
    return IsAnnotation(item.key()) || item.key() == "enum" ||
           (item.key() == "type" && item.value() == "string");
  });
  const Json given = schema.value("properties", Json::object());
  if (!is_alone || !given.is_object() || schema.contains("patternProperties") ||
      schema.contains("unevaluatedProperties"))
    return;
  const Json rest = schema.value("additionalProperties", Json(true));
  Json properties = Json::object();
  for (const auto& [name, value] : given.items()) properties[name] = false;
  for (const Json& name : names["enum"]) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    properties[text] = given.value(text, rest);
  }
  schema["properties"] = std::move(properties);
  schema["additionalProperties"] = false;
  schema.erase("propertyNames");
}

void SimplifyNot(Json& schema) {
  const Json excluded = schema["not"];
  if (AllowsAll(excluded)) {
    schema = false;
    return;
  }
  if (excluded == false) {
    schema.erase("not");
    return;
  }
  if (!excluded.is_object() || excluded.size() != 1) return;
  if (excluded.contains("type")) {
    const Json types = excluded["type"].is_array() ? excluded["type"] : Json::array({excluded["type"]});
    Json left = Json::array();
    const Json all = !schema.contains("type")
                         ? Json::array({"object", "array", "string", "number", "boolean", "null"})
                         : (schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]}));
    const auto excludes = [&](const char* type) {
      return std::ranges::find(types, Json(type)) != types.end();
    };
    for (const Json& type : all) {
      if (type == "number" && excludes("integer") && !excludes("number")) return;
      if (type == "integer" && excludes("number")) continue;
      if (std::ranges::find(types, type) == types.end()) left.push_back(type);
    }
    schema.erase("not");
    if (left.empty()) {
      schema = false;
    } else {
      schema["type"] = std::move(left);
    }
  } else if (excluded.contains("required") && schema.value("type", Json()) == "object" &&
             excluded["required"].is_array() && excluded["required"].size() == 1 &&
             excluded["required"][0].is_string() && schema.value("properties", Json::object()).is_object()) {
    schema.erase("not");
    // An object of no known members takes all; one member that is excluded makes it no list of its members.
    const bool takes_all =
        schema.value("properties", Json()).empty() && schema.value("required", Json()).empty();
    if (takes_all && !schema.contains("additionalProperties")) schema["additionalProperties"] = true;
    schema["properties"][excluded["required"][0].get<std::string>()] = false;
  }
}

void SimplifyArrays(Json& schema) {
  if (schema.contains("uniqueItems")) {
    const bool few = schema.contains("maxItems") && schema["maxItems"].is_number() &&
                     schema["maxItems"].get<double>() <= 1;
    if (few || schema["uniqueItems"] != true) schema.erase("uniqueItems");
  }
  if (!schema.contains("contains")) {
    schema.erase("minContains");
    schema.erase("maxContains");
  } else if (schema.value("minContains", Json()) == 0 && !schema.contains("maxContains")) {
    schema.erase("contains");
    schema.erase("minContains");
  } else if (AllowsAll(schema["contains"]) && !schema.contains("minContains") &&
             !schema.contains("maxContains")) {
    schema.erase("contains");
    if (!schema.contains("minItems") || schema["minItems"] == 0) schema["minItems"] = 1;
  }
}

void SimplifyUnevaluated(Json& schema, const char* keyword, const char* other) {
  if (!schema.contains(keyword)) return;
  const bool parts = HasParts(schema);
  const bool contains = other == std::string_view("items") && schema.contains("contains");
  if (AllowsAll(schema[keyword])) {
    schema.erase(keyword);
  } else if (!parts && !contains) {
    if (!schema.contains(other) &&
        !(other == std::string_view("items") && schema.contains("additionalItems")))
      schema[other] = schema[keyword];
    schema.erase(keyword);
  }
}

}  // namespace

bool AllowsAll(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  return schema.is_object() &&
         std::ranges::all_of(schema.items(), [](const auto& item) { return IsAnnotation(item.key()); });
}

bool CanSimplify(const Json& schema) {
  return std::ranges::any_of(kOthers, [&](const char* keyword) { return schema.contains(keyword); });
}

Json SimplifySchema(Json schema) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies", "patternProperties"}) {
    if (IsEmptyObject(schema, keyword)) schema.erase(keyword);
  }
  if (schema.value("minProperties", Json()) == 0) schema.erase("minProperties");
  if (schema.contains("propertyNames")) SimplifyNames(schema);
  const auto nothing = [&](const char* keyword) {
    return !schema.contains(keyword) || AllowsAll(schema[keyword]);
  };
  // First, because what "if" and "contains" look at counts as evaluated.
  SimplifyUnevaluated(schema, "unevaluatedProperties", "additionalProperties");
  SimplifyUnevaluated(schema, "unevaluatedItems", "items");
  const bool looks = schema.contains("unevaluatedProperties") || schema.contains("unevaluatedItems");
  if (!schema.contains("if") || (!looks && nothing("then") && nothing("else"))) {
    for (const char* keyword : {"if", "then", "else"}) schema.erase(keyword);
  }
  if (!looks) SimplifyArrays(schema);
  if (schema.contains("not")) SimplifyNot(schema);
  return schema;
}

Json PropertiesOfPatterns(const Json& given) {
  if (!given["patternProperties"].is_object()) throw Error("patternProperties is not an object");
  Json schema = given;
  Json properties = schema.value("properties", Json::object());
  for (const Json& name : schema.value("required", Json::array())) {
    if (name.is_string() && !properties.contains(name.get_ref<const std::string&>()))
      properties[name.get<std::string>()] = nullptr;  // known only to patterns, or to none
  }
  SchemaPatterns expressions;
  for (auto&& [name, value] : properties.items()) {
    Json all = Json::array();
    if (!value.is_null()) all.push_back(value);
    for (const auto& [pattern, part] : given["patternProperties"].items()) {
      if (expressions.Finds(pattern, name)) all.push_back(part);
    }
    if (all.empty()) all.push_back(schema.value("additionalProperties", Json(true)));
    if (all.size() == 1) {
      value = all[0];
    } else {
      value = {{"allOf", all}};
    }
  }
  schema.erase("patternProperties");
  schema["additionalProperties"] = false;
  schema["properties"] = std::move(properties);
  return schema;
}

}  // namespace coppice
