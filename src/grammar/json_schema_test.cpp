#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/json.h"
#include "grammar/grammar_test_support.h"

namespace coppice {

using namespace grammar;  // of expressions
namespace {

std::shared_ptr<const Automaton> Schema(std::string_view text) {
  Rules rules;
  const OwnedJson<nlohmann::ordered_json> schema = ParseOrderedJson(text, "schema");
  Expr root = AddJsonSchema(*schema, rules);
  rules.root = rules.Add(std::move(root));
  return Compiled(rules);
}

std::string Refusal(std::string_view text) {
  try {
    Schema(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> fit;
  std::vector<const char*> do_not;
};

void Check(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto automaton = Schema(c.schema);
    for (const char* text : c.fit) EXPECT_TRUE(Fits(automaton, text)) << text;
    for (const char* text : c.do_not) EXPECT_FALSE(Fits(automaton, text)) << text;
  }
}

TEST(JsonSchemaTest, Types) {
  Check({{"true",
          {"1", "-0.5e3", "\"a\\n\\u00e4\"", "[1, [], {}]", R"({"a": {"b": null}})", "true"},
          {"", "01", "1.", "'a'", "[1,]", "{a: 1}", "nul", "\"\n\"", R"("\ud800")", "1 "}},
         {R"({"type": "integer"})", {"0", "-12"}, {"1.0", "00", "-"}},
         {R"({"type": ["string", "null"]})", {"null", "\"\"", R"("\ud83d\ude00")"}, {"1"}},
         {R"({"type": "boolean"})", {"true", "false"}, {"null"}},
         {R"({"enum": ["a", 1, null, {"b": [true]}]})",
          {"\"a\"", "1", "null", R"({"b":[true]})"},
          {"\"b\"", "2"}},
         {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
         {R"({"const": "ä\"\n"})", {R"("ä\"\n")"}, {"\"a\""}}});
}

TEST(JsonSchemaTest, Objects) {
  Check(
      {{R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {}}, "required": ["b"]})",
        {R"({"a":1,"b":"x"})", R"({ "b": "x" })", R"({"b":"x", "c": [1]})",
         "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
        {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":1})", R"({"b":"x","d":1})", R"({"b":"x",})"}},
       {R"({"properties": {"a": true, "b": true}})",
        {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
        {R"({,"b":1})"}},
       {R"({"type": "object"})", {"{}", R"({"x":1,"y":{}})"}, {"[]"}},
       {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"x":1})"}},
       {R"({"additionalProperties": {"type": "integer"}})", {"{}", R"({"x":1,"y":2})"}, {R"({"x":"1"})"}},
       {R"({"properties": {"ab": {"const": 1}, "ac": {"const": 2}}, "additionalProperties": {"type": "null"}})",
        {R"({"ab":1,"ac":2,"a":null,"b":null,"abc":null,"":null})", R"({"x":null})"},
        {R"({"ab":null})", R"({"ac":2,"ab":null})", R"({"x":1})", R"({"\u0061b":null})"}},
       {R"({"properties": {"a": false, "b": true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
       {R"({"required": ["x"]})", {R"({"x":[1]})"}, {"{}"}},
       {R"({"patternProperties": {"^k[0-9]$": {"type": "integer"}}, "additionalProperties": false, "minProperties": 1})",
        {R"({"k1":1,"k2":2})"},
        {"{}", R"({"x":1})"}},
       {R"({"type": "object", "maxProperties": 2})",
        {"{}", R"({"x":1,"y":2})"},
        {R"({"x":1,"y":2,"z":3})"}}});
}

TEST(JsonSchemaTest, Arrays) {
  Check({{R"({"items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
          {"[1]", "[1, 2,3]"},
          {"[]", "[1,2,3,4]", "[\"a\"]"}},
         {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
         {R"({"items": false})", {"[]"}, {"[1]"}},
         {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}})",
          {"[]", "[1]", "[1,2]", "[1, 2, 3, 3]"},
          {"[2]", "[1,3]", "[1,2,2]"}},
         {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false, "minItems": 1})",
          {"[1]", "[1,2]"},
          {"[]", "[1,2,3]"}},
         {R"({"prefixItems": [{"const": 1}], "minItems": 3, "maxItems": 4})",
          {"[1,2,3]", "[1,2,3,4]"},
          {"[1,2]", "[1,2,3,4,5]"}},
         {R"({"items": [{"const": 1}], "additionalItems": {"const": 2}})", {"[1,2,2]"}, {"[1,1]"}}});
}

TEST(JsonSchemaTest, StringsAndNumbers) {
  Check({{R"({"minLength": 2, "maxLength": 3})", {"\"ab\"", R"("ä\n€")"}, {"\"a\"", "\"abcd\""}},
         {R"({"type": "string", "maxLength": 2000})", {"\"\"", "\"abc\""}, {"1"}},
         {R"({"pattern": "^[A-Z]{2}\\d$"})", {"\"AB1\""}, {"\"ab1\"", "\"AB12\""}},
         {R"({"pattern": "a\"b"})", {R"("xa\"by")"}, {"\"ab\""}},
         {R"({"format": "date"})",
          {"\"2026-11-23\"", "\"2000-01-31\""},
          {"\"2026-02-30\"", "\"2026-13-01\"", "\"0000-01-01\""}},
         {R"({"format": "date-time"})", {"\"2026-11-23T10:00:00Z\""}, {"\"2026-11-23\""}},
         {R"({"format": "uuid"})", {"\"01234567-89ab-cdef-0123-456789abcdef\""}, {"\"0\""}},
         {R"({"format": "ipv4"})", {"\"10.0.255.1\""}, {"\"10.0.256.1\""}},
         {R"({"type": "string", "format": "color"})", {"\"red\""}, {}},
         {R"({"type": "integer", "minimum": -3, "exclusiveMaximum": 12})",
          {"-3", "0", "11"},
          {"-4", "12", "1.5"}},
         {R"({"minimum": 0.5, "maximum": 2})", {"0.5", "1.99", "2", "2.0"}, {"0.4", "2.1", "-1"}},
         {R"({"type": "number", "minimum": 5, "exclusiveMinimum": true})", {"5.1", "6"}, {"5"}},
         {R"({"type": "number", "multipleOf": 1})", {"5"}, {"5.5"}}});
}

TEST(JsonSchemaTest, Combinations) {
  Check(
      {{R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", {"\"a\"", "1"}, {"null"}},
       {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"], "type": "object"},
                        {"properties": {"k": {"const": "b"}}, "required": ["k"], "type": "object"}]})",
        {R"({"k":"a","x":1})", R"({"k":"b"})"},
        {R"({"k":"a"})", R"({"k":"c"})"}},
       {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 3}, "b": true}}]})",
        {R"({"a":3})", R"({"a":4,"b":[]})"},
        {R"({"a":2})", "{}"}},
       {R"({"type": "object", "properties": {"a": {"const": 1}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
        {R"({"a":1})", R"({"a":1,"b":2})", R"({"b":2})"},
        {"{}"}},
       {R"({"anyOf": [{"minimum": 1}, {"maximum": -1}], "type": "integer"})", {"1", "-5"}, {"0", "1.5"}},
       {R"({"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": 2}, {"const": 3}]}]})",
        {"2"},
        {"1", "3"}},
       {R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 4]}]})", {"3"}, {"1", "4"}},
       {R"({"allOf": [{"properties": {"a": true}, "additionalProperties": false}, {"properties": {"b": true}}]})",
        {"{}", R"({"a":1})"},
        {R"({"b":1})"}}});
}

TEST(JsonSchemaTest, References) {
  Check(
      {{R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
             "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}})",
        {R"({"v":1,"next":{"v":2,"next":null}})"},
        {R"({"v":1})", R"({"v":1,"next":1})"}},
       {R"({"type": "array", "items": {"$ref": "#"}})", {"[[],[[]]]"}, {"[1]"}},
       {R"({"definitions": {"a/b %": {"const": 1}}, "items": {"$ref": "#/definitions/a~1b%20%25"}})",
        {"[1]"},
        {"[2]"}},
       {R"({"$defs": {"s": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/s", "minLength": 2, "description": "x"}}})",
        {R"({"a":"xx"})"},
        {R"({"a":"x"})"}}});
  EXPECT_EQ(Refusal(R"({"$ref": "#/nowhere"})"), "$ref \"#/nowhere\" refers to nothing");
  EXPECT_EQ(Refusal(R"({"$ref": "http://example.com/s"})"),
            "$ref \"http://example.com/s\": only references within the schema (#/...) are supported");
  EXPECT_EQ(Refusal(R"({"$ref": "#"})"), "no text fits the grammar");
  EXPECT_EQ(Refusal(R"({"allOf": [{"$ref": "#"}]})"), "schemas in schemas are too deep");
}

TEST(JsonSchemaTest, RefusesWhatItCannotKeep) {
  EXPECT_EQ(Refusal(R"({"not": {"minLength": 2}})"), "not is not supported");
  EXPECT_EQ(Refusal(R"({"if": {"minLength": 2}, "then": {"maxLength": 4}})"), "if is not supported");
  EXPECT_EQ(Refusal(R"({"items": {"uniqueItems": true}})"), "uniqueItems is not supported");
  EXPECT_EQ(Refusal(R"({"multipleOf": 3})"),
            "multipleOf is supported for powers of ten, or whole numbers between two bounds");
  EXPECT_EQ(Refusal(R"({"oneOf": [{"type": "string"}, {"minLength": 3}]})"),
            "alternatives 0 and 1 of oneOf may hold at once, which a grammar cannot exclude: send anyOf");
  EXPECT_EQ(Refusal(R"({"type": "strnig"})"), "type \"strnig\" is none of JSON's");
  EXPECT_EQ(Refusal("3"), "a schema is neither an object nor true or false");
  EXPECT_EQ(Refusal(R"x({"pattern": "(?=a)"})x"),
            "the pattern '(?=a)' looks ahead or behind, which is not supported");
  EXPECT_EQ(Refusal(R"({"enum": [1], "minimum": 2})"), "no text fits the grammar");
  EXPECT_EQ(Refusal(R"({"pattern": "^([a-z]+-)*$", "maxLength": 9})"),
            "minLength and maxLength beside this pattern or format are not supported: say it in the pattern");
  EXPECT_EQ(Refusal("false"), "no text fits the grammar");
}

TEST(JsonSchemaTest, KeepsWhatMeansNothingOrCanBeKept) {
  Check(
      {{R"({"items": {"type": "integer"}, "uniqueItems": false})", {"[1,1]"}, {}},
       {R"({"items": {"type": "integer"}, "uniqueItems": true, "maxItems": 1})", {"[1]"}, {"[1,2]"}},
       {R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}})",
        {R"({"a":1})"},
        {R"({"a":"b"})"}},
       {R"({"properties": {"a": {"not": {}}, "b": {"type": "null"}}, "required": ["b"]})",
        {R"({"b":null})"},
        {R"({"a":1,"b":null})"}},
       {R"({"anyOf": [{"not": {}}, {"type": "integer"}]})", {"1"}, {"null"}},
       {R"({"type": ["string", "null"], "not": {"type": "null"}})", {"\"\""}, {"null"}},
       {R"({"type": "integer", "if": {"minimum": 3}})", {"1"}, {}},
       {R"({"type": "integer", "then": {"minimum": 3}})", {"1"}, {}},
       {R"({"type": "object", "properties": {"a": true}, "dependentRequired": {}, "unevaluatedProperties": {}})",
        {R"({"a":1})"},
        {}},
       {R"({"type": "object", "properties": {"a": true}, "required": ["b"], "unevaluatedProperties": {"type": "null"}})",
        {R"({"a":1,"b":null})"},
        {R"({"a":1,"b":1})"}},
       {R"({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": true}}], "unevaluatedProperties": false})",
        {R"({"a":1,"b":2})"},
        {R"({"c":1})"}},
       {R"({"enum": [1, 2, 3, 4, "a"], "minimum": 2, "multipleOf": 2})", {"2", "4", "\"a\""}, {"1", "3"}},
       {R"({"type": "integer", "minimum": 0, "maximum": 20, "multipleOf": 5})",
        {"0", "5", "20"},
        {"4", "25"}},
       {R"({"type": "number", "multipleOf": 0.01})", {"0.25", "-3", "1.5"}, {"0.255"}},
       {R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})", {"0", "12345"}, {"-1"}},
       {R"({"pattern": "^[a-z_-]+$", "minLength": 2, "maxLength": 4})",
        {"\"ab\"", "\"abcd\""},
        {"\"a\"", "\"abcde\""}},
       {R"({"pattern": "^[A-Z]{3}$", "maxLength": 64})", {"\"ABC\""}, {"\"AB\""}},
       {R"({"format": "uuid", "pattern": "^[0-9a-fA-F]{8}$"})", {"\"0123abcd\""}, {"\"0\""}},
       {R"({"properties": {"k1": true, "x": true}, "patternProperties": {"^k": {"type": "integer"}}})",
        {R"({"k1":1,"x":"y"})"},
        {R"({"k1":"a"})", R"({"k2":1})"}},
       {R"({"patternProperties": {"^k$": {"type": "integer"}, "^l$": {"type": "integer"}}})",
        {R"({"k":1,"l":2})"},
        {R"({"k":"a"})", R"({"m":1})"}},
       {R"({"$ref": "#node", "$defs": {"n": {"$anchor": "node", "type": "integer"}}})", {"1"}, {"\"\""}}});
}

// What zod 4 and pydantic 2.12 write for email() and Decimal.
TEST(JsonSchemaTest, ExpressionsThatLibrariesWrite) {
  const char* email =
      R"x({"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})x";
  const char* decimal =
      R"x({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]})x";
  Check({{email, {"\"a.b@example.org\""}, {"\"a@b\"", "\".a@example.org\""}},
         {decimal, {"1.5", "\"-1.50\"", "\"7\""}, {"\"a\"", "\".\""}}});
}

// A grammar of a function's arguments, and what it does not enforce.
std::pair<std::shared_ptr<const Automaton>, std::vector<std::string>> Arguments(std::string_view text) {
  Rules rules;
  const OwnedJson<nlohmann::ordered_json> schema = ParseOrderedJson(text, "schema");
  std::vector<std::string> dropped;
  Expr root = AddArguments(*schema, rules, dropped);
  rules.root = rules.Add(std::move(root));
  return {Compiled(rules), dropped};
}

TEST(JsonSchemaTest, OneKeywordLosesNoMoreThanItself) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "integer", "multipleOf": 7})", "multipleOf"},
      {R"({"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 7}})", "if"},
      {R"({"type": "integer", "not": {"minimum": 3}})", "not"},
      {R"({"type": "object", "dependentRequired": {"a": ["b"]}})", "dependentRequired"},
      {R"({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}})", "dependentSchemas"},
      {R"({"type": "object", "propertyNames": {"pattern": "^a"}})", "propertyNames"},
      {R"({"type": "object", "minProperties": 2})", "minProperties"},
      {R"({"type": "object", "properties": {"a": true, "b": true}, "maxProperties": 1})", "maxProperties"},
      {R"({"type": "array", "contains": {"type": "integer"}})", "contains"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
      {R"x({"type": "string", "pattern": "^(?=a)b"})x", "pattern"},
      {R"({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]})", "pattern"},
      {R"({"type": "string", "pattern": "^([a-z]+-)*$", "maxLength": 9})", "maxLength"},
      {R"({"type": "string", "maxLength": 1000000})", "maxLength"},
      {R"({"type": "strnig"})", "type"},
      {R"({"$ref": "http://example.com/other"})", "$ref \"http://example.com/other\""},
      {R"({"$ref": "#/nowhere"})", "$ref \"#/nowhere\""},
      {R"({"type": "array", "items": 3})", "a schema is neither"},
  };
  for (const auto& [part, keyword] : cases) {
    const auto [automaton, dropped] = Arguments(
        fmt::format(R"({{"properties": {{"n": {{"type": "integer"}}, "x": {}}}, "required": ["n"]}})", part));
    SCOPED_TRACE(part);
    ASSERT_GE(dropped.size(), 1u);
    EXPECT_TRUE(std::ranges::any_of(dropped, [&](const std::string& one) {
      return one.starts_with(keyword);
    })) << dropped[0];
    EXPECT_TRUE(Fits(automaton, R"({"n":1})"));
    EXPECT_FALSE(Fits(automaton, R"({"n":"1"})"));
    EXPECT_FALSE(Fits(automaton, R"({"x":1})"));
  }
  // The part keeps the rest of its own keywords.
  const auto [automaton, dropped] = Arguments(
      R"({"properties": {"a": {"type": "array", "items": {"type": "integer", "multipleOf": 7}, "uniqueItems": true}}})");
  EXPECT_EQ(dropped, (std::vector<std::string>{"uniqueItems", "multipleOf"}));
  EXPECT_FALSE(Fits(automaton, R"({"a":["x"]})"));
  EXPECT_TRUE(Fits(automaton, R"({"a":[1,1]})"));
}

// Values of every wrong type for every keyword: an error or a grammar, and for arguments always a grammar.
TEST(JsonSchemaTest, MalformedKeywords) {
  const char* keywords[] = {"type",
                            "enum",
                            "const",
                            "properties",
                            "required",
                            "additionalProperties",
                            "items",
                            "prefixItems",
                            "patternProperties",
                            "propertyNames",
                            "not",
                            "if",
                            "then",
                            "contains",
                            "minContains",
                            "uniqueItems",
                            "multipleOf",
                            "minimum",
                            "maximum",
                            "minLength",
                            "maxLength",
                            "pattern",
                            "format",
                            "minItems",
                            "minProperties",
                            "maxProperties",
                            "dependentRequired",
                            "unevaluatedProperties",
                            "unevaluatedItems",
                            "$ref",
                            "$id",
                            "$anchor",
                            "$defs"};
  const char* values[] = {"null", "true", "3",  "-1.5",        "\"x\"",
                          "[]",   "[1]",  "{}", R"({"a": 1})", R"({"required": ["a"]})"};
  for (const char* keyword : keywords) {
    for (const char* value : values) {
      for (
          const char* frame :
          {R"({{"description": "x", "{}": {}}})", R"({{"properties": {{"x": {{"{}": {}}}}}}})",
           R"({{"type": "object", "properties": {{"a": true}}, "patternProperties": {{"a": true}}, "allOf": [{{"{0}": {1}}}, {{"{0}": [2]}}]}})"}) {
        const std::string text = fmt::format(fmt::runtime(frame), keyword, value);
        SCOPED_TRACE(text);
        if (Refusal(text).empty()) Schema(text);
        try {
          Arguments(text);
        } catch (const Error& error) {
          EXPECT_STREQ(error.what(), "no text fits the grammar");
        }
      }
    }
  }
}

TEST(JsonSchemaTest, ArgumentsAreAlwaysAnObject) {
  for (const char* text :
       {R"({"description": "nothing"})", R"({"type": "any"})", R"({"type": ["object", "null"]})",
        R"({"anyOf": [{"type": "object"}, {"type": "string"}]})"}) {
    const auto [automaton, dropped] = Arguments(text);
    EXPECT_TRUE(Fits(automaton, "{}")) << text;
    for (const char* other : {"null", "\"a\"", "[]", "1"}) EXPECT_FALSE(Fits(automaton, other)) << text;
  }
}

TEST(JsonSchemaTest, HostileSchemasEndSoon) {
  std::string doubling = R"({"$ref": "#/$defs/a0", "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    doubling += fmt::format(R"("a{}": {{"allOf": [{{"$ref": "#/$defs/a{}"}}, {{"$ref": "#/$defs/a{}"}}]}}, )",
                            i, i + 1, i + 1);
  }
  doubling += R"("a40": {"type": "string"}}})";
  std::string deep;
  for (int i = 0; i < 60; ++i) deep += R"({"items": )";
  deep += "true" + std::string(60, '}');
  std::string wide = R"({"properties": {)";
  for (int i = 0; i < 1000; ++i)
    wide += fmt::format(R"({}"p{}": {{"type": "string", "maxLength": 50}})", i > 0 ? ", " : "", i);
  wide += R"(}, "additionalProperties": true})";
  std::string alternatives = R"({"anyOf": [)";
  for (int i = 0; i < 1000; ++i)
    alternatives += fmt::format(R"({}{{"pattern": "(a|b)*a(a|b){{{}}}"}})", i > 0 ? ", " : "", i % 30);
  alternatives += "]}";
  std::string products = R"({"allOf": [)";
  for (int i = 0; i < 30; ++i)
    products += fmt::format(R"({}{{"anyOf": [{{"minLength": {}}}, {{"maxLength": {}}}]}})", i > 0 ? ", " : "",
                            i, 99 - i);
  products += "]}";
  for (const std::string& text :
       {doubling, deep, wide, alternatives, products, std::string(R"({"maxLength": 99999})"),
        std::string(R"({"maxItems": 99999})"), std::string(R"({"pattern": "^(((a{99}){99}){99})$"})")}) {
    const auto start = std::chrono::steady_clock::now();
    const std::string refusal = Refusal(text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << text.substr(0, 60);
    RecordProperty(text.substr(2, 8), refusal);
  }
}

}  // namespace
}  // namespace coppice
