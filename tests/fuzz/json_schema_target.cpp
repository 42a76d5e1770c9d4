// JSON schemas, with the compilation of what was read and a walk along it.
#include "grammar/json_schema.h"

#include "formats/json.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "grammar/grammar_test_support.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 120}, "b": {"enum": ["x", 1]}},)"
      R"( "required": ["a"], "additionalProperties": {"$ref": "#/$defs/s"}, "$defs": {"s": {"minLength": 1, "maxLength": 9}}})",
      R"({"anyOf": [{"items": {"$ref": "#"}, "maxItems": 2}, {"pattern": "^[a-z]+(\\d{2}|x)?$"}, {"format": "date"}]})",
      R"({"allOf": [{"prefixItems": [true, {"const": 2.5}], "items": false}, {"minItems": 1}], "oneOf": [{"type": "array"}, {"type": "null"}]})"};
}

bool Run(std::string_view input) {
  return Accepts([&] {
    const OwnedJson<nlohmann::ordered_json> schema = ParseOrderedJson(input, "x.json", 10'000);
    grammar::Rules rules;
    grammar::Expr root = AddJsonSchema(*schema, rules);
    rules.root = rules.Add(std::move(root));
    GrammarMatcher matcher(Compiled(rules));
    // What a walk along the grammar ends with is JSON.
    std::string text;
    for (int step = 0; step < 60 && !matcher.must_end(); ++step) {
      matcher.RenewBudget();
      bool goes_on = false;
      for (int i = 0; i < 256 && !goes_on; ++i) {
        const auto byte = static_cast<uint8_t>((i * 37 + step * 11) & 0xFF);
        goes_on = matcher.Push(byte);
        if (goes_on) text += static_cast<char>(byte);
      }
      if (!goes_on) abort();  // nothing follows, and the text may not end
    }
    if (matcher.must_end()) ParseJson(text, "the text");
  });
}

}  // namespace

FuzzTarget JsonSchemaTarget() {
  return {"json_schema",
          Seeds,
          {"\"type\":",
           "\"object\"",
           "\"properties\":",
           "\"required\":",
           "\"items\":",
           "\"prefixItems\":",
           "\"anyOf\":",
           "\"allOf\":",
           "\"oneOf\":",
           "\"$ref\":",
           "\"#\"",
           "\"#/$defs/s\"",
           "\"enum\":",
           "\"const\":",
           "\"pattern\":",
           "\"||||\"",
           "{100000}",
           "(){",
           "|",
           "\"patternProperties\":",
           "\"minLength\":",
           "100000",
           "\"minimum\":",
           "\"exclusiveMaximum\":",
           "\"maxLength\":",
           "\"minItems\":",
           "\"additionalProperties\":",
           "true",
           "false",
           "{}",
           "[]"},
          Run};
}

}  // namespace coppice
