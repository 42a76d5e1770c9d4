#include "grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "grammar/schema_values.h"

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;

Json AllOf(const Json& a, const Json& b) { return {{"allOf", Json::array({a, b})}}; }

Json TypesOf(const Json& schema) {
  if (!schema.is_object() || !schema.contains("type")) return nullptr;
  return schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
}

bool Has(const Json& list, const Json& value) {
  return std::ranges::any_of(list, [&](const Json& one) { return SameValue(one, value); });
}

Json CommonTypes(const Json& a, const Json& b) {
  Json common = Json::array();
  for (const Json& type : a) {
    if (Has(b, type)) {
      common.push_back(type);
    } else if (type == "integer" && Has(b, "number")) {
      common.push_back("integer");
    } else if (type == "number" && Has(b, "integer")) {
      common.push_back("integer");
    }
  }
  return common;
}

// The values that a schema lists, or null.
Json ValuesOf(const Json& schema) {
  if (!schema.is_object()) return nullptr;
  if (schema.contains("const")) return Json::array({schema["const"]});
  return schema.contains("enum") && schema["enum"].is_array() ? schema["enum"] : Json();
}

// A member that only `schema` names, beside a schema `other` for all members that it does not name.
Json WithRest(const Json& schema, const Json& other) {
  if (!other.contains("additionalProperties")) return schema;
  const Json& rest = other["additionalProperties"];
  if (rest.is_boolean()) return rest.get<bool>() ? schema : Json(false);
  return AllOf(schema, rest);
}

void MergeProperties(const Json& a, const Json& b, Json& merged) {
  const Json none = Json::object();
  const Json& in_a = a.contains("properties") ? a["properties"] : none;
  const Json& in_b = b.contains("properties") ? b["properties"] : none;
  if (!in_a.is_object() || !in_b.is_object()) throw Error("properties is not an object");
  Json properties = Json::object();
  for (const auto& [name, schema] : in_a.items())
    properties[name] = in_b.contains(name) ? AllOf(schema, in_b[name]) : WithRest(schema, b);
  for (const auto& [name, schema] : in_b.items()) {
    if (!in_a.contains(name)) properties[name] = WithRest(schema, a);
  }
  if (!properties.empty()) merged["properties"] = std::move(properties);
}

double NumberOf(const Json& value, const char* keyword) {
  if (!value.is_number()) throw Error("{} is not a number", keyword);
  return value.get<double>();
}

// Merging compares each value with each.
void CheckProduct(const std::string& keyword, const Json& a, const Json& b) {
  if (a.size() * b.size() > 1'000'000) throw Error("{} is too long to be merged with another", keyword);
}

// Keywords that both have, and how one value stands for both.
Json MergeKeyword(const std::string& keyword, const Json& a, const Json& b, SchemaNotes& notes) {
  if (a == b) return a;
  if (keyword == "required") {
    CheckProduct(keyword, a, b);
    Json both = a;
    for (const Json& name : b) {
      if (!Has(both, name)) both.push_back(name);
    }
    return both;
  }
  for (const char* lower : {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) {
    if (keyword == lower) return NumberOf(a, lower) > NumberOf(b, lower) ? a : b;
  }
  for (const char* upper : {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) {
    if (keyword == upper) return NumberOf(a, upper) < NumberOf(b, upper) ? a : b;
  }
  if (keyword == "items" && !a.is_array() && !b.is_array()) return AllOf(a, b);
  if (keyword == "additionalProperties") return AllOf(a, b);
  notes.Drop(keyword,
             fmt::format("{} stands in two schemas that both hold, which is not supported", keyword));
  return a;
}

// What the keywords of arrays say depends on those beside them.
bool ArraysDiffer(const Json& a, const Json& b) {
  const auto keywords = [](const Json& schema) {
    Json found = Json::object();
    for (const char* keyword : {"items", "prefixItems", "additionalItems"}) {
      if (schema.contains(keyword)) found[keyword] = schema[keyword];
    }
    return found;
  };
  const Json in_a = keywords(a);
  const Json in_b = keywords(b);
  const auto is_list = [](const Json& found) {
    return found.contains("prefixItems") || (found.contains("items") && found["items"].is_array());
  };
  return !in_a.empty() && !in_b.empty() && in_a != in_b && (is_list(in_a) || is_list(in_b));
}

}  // namespace

bool IsAnnotation(std::string_view keyword) {
  static constexpr std::array kAnnotations{"title",
                                           "description",
                                           "default",
                                           "examples",
                                           "example",
                                           "deprecated",
                                           "readOnly",
                                           "writeOnly",
                                           "$comment",
                                           "$schema",
                                           "$id",
                                           "id",
                                           "$defs",
                                           "definitions",
                                           "$anchor",
                                           "$dynamicAnchor",
                                           "$recursiveAnchor",
                                           "nullable",
                                           "externalDocs",
                                           "xml",
                                           "$vocabulary",
                                           "contentEncoding",
                                           "strict",
                                           "contentSchema",
                                           "contentMediaType",
                                           "name",
                                           "discriminator"};
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end() || keyword.starts_with("x-");
}

size_t MergingSteps(const Json& a, const Json& b) {
  constexpr size_t kComparedAtOnce = 16;
  size_t steps = CountValues(a) + CountValues(b);
  if (!a.is_object() || !b.is_object()) return steps;
  const auto size = [](const Json& schema, const char* keyword) {
    return schema.contains(keyword) ? schema[keyword].size() : 0;
  };
  for (const char* keyword : {"required", "enum", "type", "properties"})
    steps += size(a, keyword) * size(b, keyword) / kComparedAtOnce;
  for (const char* keyword : {"anyOf", "oneOf"}) {  // each alternative of one gets all of the other
    if (size(a, keyword) > 0 && b.contains(keyword)) steps += size(a, keyword) * CountValues(b[keyword]);
  }
  const auto rest = [](const Json& schema) {
    return schema.contains("additionalProperties") ? CountValues(schema["additionalProperties"]) : 0;
  };
  return steps + size(a, "properties") * rest(b) + size(b, "properties") * rest(a);
}

Json MergeSchemas(const Json& a, const Json& b, SchemaNotes& notes) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  if (!a.is_object() || !b.is_object()) throw Error("a schema is neither an object nor true or false");
  const bool arrays_differ = ArraysDiffer(a, b);
  Json merged = Json::object();
  for (const auto& [keyword, value] : a.items()) {
    if (!IsAnnotation(keyword)) merged[keyword] = value;
  }
  for (const auto& [keyword, value] : b.items()) {
    if (IsAnnotation(keyword)) continue;
    if (arrays_differ && (keyword == "items" || keyword == "prefixItems" || keyword == "additionalItems")) {
      notes.Drop(keyword,
                 "the items of an array stand in two schemas that both hold, which is not supported");
    } else if (!merged.contains(keyword)) {
      merged[keyword] = value;
    } else if (keyword == "type") {
      merged[keyword] = CommonTypes(TypesOf(a), TypesOf(b));
    } else if (keyword == "allOf") {
      for (const Json& part : value) merged[keyword].push_back(part);
    } else if (keyword == "anyOf" || keyword == "oneOf") {
      for (Json& alternative : merged[keyword]) alternative = AllOf(alternative, {{keyword, value}});
    } else if (keyword == "enum") {
      CheckProduct(keyword, merged[keyword], value);
      Json both = Json::array();
      for (const Json& one : value) {
        if (Has(merged[keyword], one)) both.push_back(one);
      }
      merged[keyword] = std::move(both);
    } else if (keyword == "const") {
      if (!SameValue(merged[keyword], value)) return false;
    } else if (keyword != "properties") {
      merged[keyword] = MergeKeyword(keyword, merged[keyword], value, notes);
    }
  }
  MergeProperties(a, b, merged);
  return merged;
}

bool AreDisjoint(const Json& a, const Json& b, const std::function<void(size_t)>& spend) {
  if (!a.is_object() || !b.is_object()) return false;
  spend(a.size() + b.size());
  const auto has = [&](const Json& list, const Json& value) {
    return std::ranges::any_of(list, [&](const Json& one) { return SameValue(one, value, spend); });
  };
  for (const Json* schema : {&a, &b}) {
    for (const char* list : {"enum", "type", "required"}) {  // copied, or gone through
      if (schema->contains(list)) spend((*schema)[list].size());
    }
  }
  const Json values_a = ValuesOf(a);
  const Json values_b = ValuesOf(b);
  if (values_a.is_array() && values_b.is_array())
    return std::ranges::none_of(values_a, [&](const Json& value) { return has(values_b, value); });
  const Json types_a = TypesOf(a);
  const Json types_b = TypesOf(b);
  if (!types_a.is_array() || !types_b.is_array()) return false;
  spend(types_a.size() * types_b.size());
  const Json common = CommonTypes(types_a, types_b);
  if (common.empty()) return true;
  if (common != Json::array({"object"})) return false;
  if (!a.contains("required") || !b.contains("required") || !a.contains("properties") ||
      !b.contains("properties"))
    return false;
  return std::ranges::any_of(a["required"], [&](const Json& name) {
    if (!name.is_string() || !has(b["required"], name)) return false;
    const std::string& key = name.get_ref<const std::string&>();
    return a["properties"].contains(key) && b["properties"].contains(key) &&
           AreDisjoint(a["properties"][key], b["properties"][key], spend);
  });
}

}  // namespace coppice
