// Keywords that a grammar keeps because others say the same.
#include "grammar/schema_simplify.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "formats/json.h"
#include "grammar/grammar_test_support.h"
#include "grammar/json_schema.h"

namespace coppice {
namespace {

std::shared_ptr<const Automaton> AutomatonOf(std::string_view text) {
  grammar::Rules rules;
  const OwnedJson<nlohmann::ordered_json> schema = ParseOrderedJson(text, "schema");
  grammar::Expr root = AddJsonSchema(*schema, rules);
  rules.root = rules.Add(std::move(root));
  return Compiled(rules);
}

void Check(std::string_view schema, const std::vector<std::string>& fit,
           const std::vector<std::string>& do_not) {
  SCOPED_TRACE(schema);
  const auto automaton = AutomatonOf(schema);
  for (const std::string& text : fit) EXPECT_TRUE(Fits(automaton, text)) << text;
  for (const std::string& text : do_not) EXPECT_FALSE(Fits(automaton, text)) << text;
}

// zod 4's z.record(z.enum([...]), ...), and z.partialRecord.
TEST(SchemaSimplifyTest, NamesOfAnEnum) {
  Check(R"({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
            "additionalProperties": {"type": "number"}, "required": ["a", "b"]})",
        {R"({"a":1,"b":2})"}, {R"({"a":1})", R"({"a":1,"b":2,"c":3})", R"({"a":1,"b":"x"})"});
  Check(R"({"propertyNames": {"enum": ["a", "b"]}, "type": "object"})",
        {"{}", R"({"b":"x"})", R"({"a":[],"b":1})"}, {R"({"c":1})"});
  Check(R"({"propertyNames": {"enum": ["b", "c", 1]}, "properties": {"a": true, "b": {"type": "null"}},
            "additionalProperties": false})",
        {"{}", R"({"b":null})"}, {R"({"a":1})", R"({"b":1})", R"({"c":1})", R"({"1":1})"});
  // pydantic's dict[Color, int]
  Check(R"({"$defs": {"Color": {"enum": ["r", "g"], "title": "Color", "type": "string"}}, "type": "object",
            "propertyNames": {"$ref": "#/$defs/Color"}, "additionalProperties": {"type": "integer"}})",
        {"{}", R"({"r":1,"g":2})"}, {R"({"x":1})", R"({"r":"a"})"});
  EXPECT_THROW(AutomatonOf(R"({"type": "object", "propertyNames": {"$ref": "#/none"}})"), Error);
  EXPECT_THROW(AutomatonOf(R"({"propertyNames": {"minLength": 2}, "type": "object"})"), Error);
  EXPECT_THROW(
      AutomatonOf(R"({"propertyNames": {"enum": ["a"]}, "patternProperties": {"^a": {"type": "null"}}})"),
      Error);
}

// What "if" and "contains" look at is evaluated, even where they decide nothing.
TEST(SchemaSimplifyTest, EvaluatedByWhatDecidesNothing) {
  EXPECT_THROW(AutomatonOf(R"({"type": "object", "properties": {"b": true}, "if": {"properties": {"a": true}},
                          "unevaluatedProperties": false})"),
               Error);
  EXPECT_THROW(AutomatonOf(R"({"type": "array", "contains": true, "unevaluatedItems": false})"), Error);
  Check(R"({"type": "array", "contains": true, "unevaluatedItems": true})", {"[1]"}, {"[]"});
}

TEST(SchemaSimplifyTest, OneMemberExcluded) {
  Check(R"({"type": "object", "not": {"required": ["a"]}})", {"{}", R"({"b":1})"}, {R"({"a":1})"});
}

TEST(SchemaSimplifyTest, AtLeastOneMember) {
  const char* schema =
      R"({"properties": {"a": {"type": "integer"}, "b": true}, "minProperties": 1, "additionalProperties": false})";
  Check(schema, {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}", R"({"c":1})"});
  Check(R"({"properties": {"a": true}, "minProperties": 1, "additionalProperties": true})",
        {R"({"a":1})", R"({"x":1})", R"({"a":1,"x":2})"}, {"{}"});
  Check(R"({"properties": {"a": true}, "required": ["a"], "minProperties": 1})", {R"({"a":1})"}, {"{}"});
  EXPECT_THROW(AutomatonOf(R"({"properties": {"a": true, "b": true}, "minProperties": 2})"), Error);
}

TEST(SchemaSimplifyTest, DurationsOfZod) {
  Check(
      R"x({"type": "string", "format": "duration", "pattern": "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})x",
      {"\"P3W\"", "\"P1Y\"", "\"P2M1D\"", "\"PT30M\"", "\"P1DT12H\"", "\"PT1H30S\""},
      {"\"P\"", "\"PT\"", "\"P1W2D\"", "\"1D\"", "\"P1DT\""});
}

}  // namespace
}  // namespace coppice
