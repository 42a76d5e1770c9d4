// The law of the grammars of schemas: what they let through, the checker lets through, but for the keywords
// that they report as not enforced.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "grammar/grammar_test_support.h"
#include "grammar/json_schema.h"
#include "grammar/schema_check.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;
using RandomBits = std::mt19937;

size_t Below(RandomBits& random, size_t count) { return random() % count; }

Json RandomSchema(RandomBits& random, int depth);

void AddNumberKeywords(RandomBits& random, Json& schema) {
  if (Below(random, 3) == 0) schema["minimum"] = static_cast<int>(Below(random, 40)) - 20;
  if (Below(random, 3) == 0) schema["maximum"] = static_cast<int>(Below(random, 40)) - 10;
  if (Below(random, 5) == 0) schema["exclusiveMinimum"] = 2.5;
  if (Below(random, 5) == 0) schema["multipleOf"] = Json::parse(Below(random, 2) == 0 ? "0.01" : "3");
}

void AddStringKeywords(RandomBits& random, Json& schema) {
  const char* patterns[] = {"^[a-c]+$", "^a", "b$", "^\\d{2,4}$", "a|b", "^(ab|c)*$", "^(?=a)b", "^\\S+$"};
  if (Below(random, 2) == 0) schema["minLength"] = Below(random, 4);
  if (Below(random, 3) == 0) schema["maxLength"] = Below(random, 6);
  if (Below(random, 3) == 0) schema["pattern"] = patterns[Below(random, std::size(patterns))];
  if (Below(random, 5) == 0) schema["format"] = Below(random, 2) == 0 ? "date" : "email";
}

void AddArrayKeywords(RandomBits& random, Json& schema, int depth) {
  if (Below(random, 2) == 0) schema["items"] = RandomSchema(random, depth - 1);
  if (Below(random, 4) == 0) schema["prefixItems"] = Json::array({RandomSchema(random, depth - 1)});
  if (Below(random, 4) == 0) schema["minItems"] = Below(random, 3);
  if (Below(random, 4) == 0) schema["maxItems"] = Below(random, 4);
  if (Below(random, 4) == 0) schema["uniqueItems"] = Below(random, 2) == 0;
  if (Below(random, 6) == 0) schema["contains"] = RandomSchema(random, depth - 1);
  if (Below(random, 6) == 0) schema["unevaluatedItems"] = false;
}

void AddObjectKeywords(RandomBits& random, Json& schema, int depth) {
  for (const char* name : {"a", "b", "kc"}) {
    if (Below(random, 2) == 0) schema["properties"][name] = RandomSchema(random, depth - 1);
    if (Below(random, 4) == 0) schema["required"].push_back(name);
  }
  if (Below(random, 4) == 0) schema["additionalProperties"] = RandomSchema(random, depth - 1);
  if (Below(random, 4) == 0) schema["patternProperties"]["^k"] = RandomSchema(random, depth - 1);
  if (Below(random, 8) == 0) schema["patternProperties"]["a$"] = RandomSchema(random, depth - 1);
  if (Below(random, 6) == 0) schema["minProperties"] = Below(random, 3);
  if (Below(random, 6) == 0) schema["maxProperties"] = 1 + Below(random, 3);
  if (Below(random, 6) == 0) schema["propertyNames"] = {{"minLength", Below(random, 2)}};
  if (Below(random, 6) == 0) schema["propertyNames"] = {{"enum", {"a", "kc", "z"}}};
  if (Below(random, 6) == 0) schema["unevaluatedProperties"] = false;
  if (Below(random, 6) == 0) schema["dependentRequired"] = {{"a", {"b"}}};
}

// A schema with keywords that matter to its type, and sometimes schemas beside them.
Json RandomSchema(RandomBits& random, int depth) {
  if (depth <= 0 || Below(random, 12) == 0) return Json::parse(Below(random, 4) == 0 ? "false" : "true");
  if (Below(random, 12) == 0) return {{"$ref", Below(random, 2) == 0 ? "#/$defs/d" : "#e"}};
  Json schema = Json::object();
  switch (Below(random, 6)) {
    case 0:
      schema["type"] = Below(random, 2) == 0 ? "integer" : "number";
      AddNumberKeywords(random, schema);
      break;
    case 1:
      schema["type"] = "string";
      AddStringKeywords(random, schema);
      break;
    case 2:
      schema["type"] = "array";
      AddArrayKeywords(random, schema, depth);
      break;
    case 3:
    case 4:
      schema["type"] = "object";
      AddObjectKeywords(random, schema, depth);
      break;
    default:
      schema = {{"enum", {1, "a", nullptr, {{"a", 1}}, {1, 2}}}};
      if (Below(random, 2) == 0) AddNumberKeywords(random, schema);
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    if (Below(random, 8) == 0)
      schema[keyword] = {RandomSchema(random, depth - 1), RandomSchema(random, depth - 1)};
  }
  if (Below(random, 12) == 0)
    schema["not"] = Json::parse(Below(random, 2) == 0 ? "{}" : R"({"type": "null"})");
  if (Below(random, 12) == 0) schema["if"] = RandomSchema(random, depth - 1);
  if (Below(random, 12) == 0) schema["then"] = RandomSchema(random, depth - 1);
  return schema;
}

// A text of the grammar, by a random walk; empty if it does not end soon.
std::string Walk(const std::shared_ptr<const Automaton>& automaton, RandomBits& random) {
  GrammarMatcher matcher(automaton);
  std::string text;
  std::string bytes = R"("""{}[]:,,aabbckd01234-. tfn\)";
  while (text.size() < 300) {
    if (matcher.can_end() && (Below(random, 3) == 0 || matcher.must_end())) return text;
    std::ranges::shuffle(bytes, random);
    std::string all = bytes;
    for (int c = 0x20; c < 0x7F; ++c) all += static_cast<char>(c);
    matcher.RenewBudget();
    const auto next =
        std::ranges::find_if(all, [&](char c) { return matcher.Push(static_cast<uint8_t>(c)); });
    if (next == all.end()) return "";
    text += *next;
  }
  return "";
}

// What depends on members and items that a dropped keyword would have looked at.
std::vector<std::string> WithDependents(std::vector<std::string> dropped) {
  const auto has = [&](const char* keyword) { return std::ranges::find(dropped, keyword) != dropped.end(); };
  std::erase(dropped, "oneOf");
  if (has("patternProperties") || has("dependentSchemas") || has("if"))
    dropped.emplace_back("additionalProperties");
  if (has("items") || has("prefixItems")) dropped.insert(dropped.end(), {"items", "prefixItems"});
  dropped.insert(dropped.end(), {"unevaluatedProperties", "unevaluatedItems"});
  return dropped;
}

// The schema without the keywords; alternatives may then hold at once.
Json Without(const Json& schema, const std::vector<std::string>& keywords) {
  if (schema.is_array()) {
    Json result = Json::array();
    for (const Json& item : schema) result.push_back(Without(item, keywords));
    return result;
  }
  if (!schema.is_object()) return schema;
  Json result = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (std::ranges::find(keywords, key) != keywords.end()) continue;
    result[key == "oneOf" ? "anyOf" : key] = key == "enum" ? value : Without(value, keywords);
  }
  return result;
}

TEST(SchemaLaw, WhatTheGrammarLetsThroughTheCheckerLetsThrough) {
  RandomBits random(5);
  int walked = 0, wholly = 0, strict = 0;
  for (int i = 0; i < 2000; ++i) {
    Json schema = {{"type", "object"}, {"properties", {{"x", RandomSchema(random, 3)}}}, {"required", {"x"}}};
    schema["$defs"]["d"] = RandomSchema(random, 2);
    schema["$defs"]["e"] = {{"$anchor", "e"}, {"anyOf", {RandomSchema(random, 1), {{"type", "null"}}}}};
    for (const bool may_drop : {true, false}) {
      std::vector<std::string> dropped;
      std::shared_ptr<const Automaton> automaton;
      try {
        grammar::Rules rules;
        grammar::Expr root = may_drop ? AddArguments(schema, rules, dropped) : AddJsonSchema(schema, rules);
        rules.root = rules.Add(std::move(root));
        automaton = Compiled(rules);
      } catch (const Error&) {
        continue;  // nothing fits, or it says what it cannot keep
      }
      // A part that is wrong as a whole is reported in words.
      if (std::ranges::any_of(dropped, [](const std::string& one) { return one.find(' ') != one.npos; }))
        continue;
      for (int j = 0; j < 4; ++j) {
        const std::string text = Walk(automaton, random);
        if (text.empty()) continue;
        ++walked;
        (may_drop ? wholly : strict) += dropped.empty() ? 1 : 0;
        // Members may repeat where names are free; only the last of them is checked then.
        const Json value = Json::parse(text);
        const Json kept = dropped.empty() ? schema : Without(schema, WithDependents(dropped));
        try {
          const std::vector<SchemaFault> faults = CheckSchema(kept, value);
          EXPECT_TRUE(faults.empty())
              << schema << "\n"
              << text << "\n"
              << faults[0].path << ": " << faults[0].message << "\nnot enforced: " << Json(dropped);
        } catch (const Error&) {  // the random schema refers to itself without end
        }
      }
    }
  }
  EXPECT_GT(walked, 1000);
  EXPECT_GT(wholly, 300);
  EXPECT_GT(strict, 300);
}

}  // namespace
}  // namespace coppice
